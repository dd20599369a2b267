"""What is built from the repository holds what it should, and the same from an sdist as from the tree."""

from __future__ import annotations

import configparser
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

TREE = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not (TREE / "src" / "prefect_dispatch").is_dir(), reason="builds the source tree, which is not here"
)


class Built(NamedTuple):
    sdist: Path
    from_sdist: Path
    from_tree: Path


def build(source: Path, target: Path, *words: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), *words, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An sdist, the wheel of its unpacked folder, and the wheel of the tree."""
    place = tmp_path_factory.mktemp("built")
    build(TREE, place / "sdist", "--sdist")
    [sdist] = (place / "sdist").iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    build(unpacked, place / "from_sdist", "--wheel")
    build(TREE, place / "from_tree", "--wheel")
    [from_sdist], [from_tree] = (place / "from_sdist").iterdir(), (place / "from_tree").iterdir()
    return Built(sdist, from_sdist, from_tree)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sources() -> set[str]:
    package = TREE / "src"
    return {str(file.relative_to(package)) for file in package.rglob("*.py")}


def test_the_wheel_is_the_same_from_the_sdist_as_from_the_tree(built: Built) -> None:
    assert built.from_sdist.name == built.from_tree.name
    assert contents(built.from_sdist) == contents(built.from_tree)


def test_the_wheel_holds_the_package_its_types_its_licence_and_the_demos_program(built: Built) -> None:
    inside = contents(built.from_tree)
    # every module is there, and of the repository nothing else
    assert sources() <= set(inside)
    assert {name.split("/")[0].split("-")[0] for name in inside} == {"prefect_dispatch"}
    assert {name for name in inside if name.endswith(".py")} - sources() == {
        "prefect_dispatch/examples/train_digits.py"
    }
    # and so is what is not a module
    assert "prefect_dispatch/py.typed" in inside
    program = (TREE / "examples" / "train_digits.py").read_bytes()
    assert inside["prefect_dispatch/examples/train_digits.py"] == program
    [licence] = [name for name in inside if name.endswith("licenses/LICENSE")]
    assert inside[licence] == (TREE / "LICENSE").read_bytes()
    assert not [name for name in inside if name.endswith(".pyc")]


def test_the_wheel_names_its_commands_and_its_collection(built: Built) -> None:
    [name] = [name for name in contents(built.from_tree) if name.endswith("entry_points.txt")]
    parser = configparser.ConfigParser()
    parser.read_string(contents(built.from_tree)[name].decode())
    points = {(group, *point) for group in parser.sections() for point in parser.items(group)}
    assert points == {
        ("console_scripts", "dispatch-job", "prefect_dispatch.job.__main__:start"),
        ("console_scripts", "prefect-dispatch", "prefect_dispatch.cli.__main__:main"),
        ("prefect.collections", "prefect_dispatch", "prefect_dispatch.blocks"),
    }


def test_the_sdist_holds_what_its_tests_need_and_each_folder_once(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    # the parts that the top of the repository links to are there, under their real names only
    for part in ("flows", "tasks", "blocks"):
        if any((TREE / "src" / "prefect_dispatch" / part).glob("*.py")):
            assert any(name.startswith(f"src/prefect_dispatch/{part}/") for name in members)
        assert not any(name.startswith(f"{part}/") for name in members)
    assert {"pyproject.toml", "README.md", "LICENSE", "examples/digits.yaml", "tests/unit/test_packaging.py"} <= set(
        members
    )
    assert not [name for name in members if "__pycache__" in name or name.startswith((".git/", ".venv"))]
    assert all(member.isfile() for member in members.values())
