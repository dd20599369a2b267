"""What holds for the code as a whole: one-way imports, an old Python for the job's side, purity, and clean checkers."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import prefect_dispatch

PACKAGE = Path(prefect_dispatch.__file__).parent
TREE = Path(__file__).resolve().parents[2]
needs_tree = pytest.mark.skipif(
    not (TREE / "src" / "prefect_dispatch").is_dir(), reason="checks the source tree, which is not here"
)

LOWER = ("stores", "format", "failpoints", "failpoint", "errors")
CHAIN = ("cli", "flows", "tasks", "blocks", "pictures", "supervisor", "schedulers", "model", *LOWER)
MAY_IMPORT = {part: set(CHAIN[number:]) for number, part in enumerate(CHAIN)}
MAY_IMPORT["job"] = {"job", *LOWER}
MAY_IMPORT["testing"] = {"testing", "job", *CHAIN} - {"cli"}
JOB_SIDE = ("errors", "failpoint", "failpoints", "format", "job", "stores")
"""What runs inside the job: standard library only, Python 3.9. ``stores/s3*`` may import its libraries."""
PURE = ("format", "model")
MADE_FROM_CHANCE = ("format", "names.py")
IMPURE = re.compile(
    r"(datetime|date)\.(now|utcnow|today)|time\.(time|monotonic|perf_counter|sleep|localtime|gmtime|strftime)(_ns)?|"
    r"random\.\w+|secrets\.\w+|uuid\.uuid\w+|open|input|print|"
    r"os\.(?!path\.(isabs|join|normpath|basename|dirname|split|splitext)\b).*|(socket|subprocess|tempfile|shutil)\..*|"
    r"(\w+\.)*(read_text|write_text|read_bytes|write_bytes)"
)


class Import(NamedTuple):
    """One imported module, and where."""

    place: str
    part: str
    module: str


def modules(*parts: str) -> list[Path]:
    """The package's files, of some parts or of all."""
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    return [file for file in files if "examples" not in file.parts and (not parts or part_of(file) in parts)]


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def imports(file: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and those by name included."""
    for node in ast.walk(parse(file)):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: write relative imports in full"
            found = [str(node.module)]
            if node.module == "prefect_dispatch":
                found = [f"prefect_dispatch.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found = [str(node.args[0].value)] if node.args and isinstance(node.args[0], ast.Constant) else []
        for module in found:
            yield Import(f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}", part_of(file), module)


def own_part(module: str) -> str | None:
    """The part of this package that a module belongs to; None if it is another's."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "prefect_dispatch" else None


def test_imports_run_one_way() -> None:
    # given every import of the package
    every = [one for file in modules() for one in imports(file) if one.part in MAY_IMPORT]
    # when those that lead upwards or across are sought
    wrong = [
        f"{one.place} imports {one.module}"
        for one in every
        if (part := own_part(one.module)) in {"cli", "testing", *MAY_IMPORT} and part not in MAY_IMPORT[one.part]
    ]
    # then there is none, and the search did see imports
    assert len(every) > 50
    assert wrong == []


def test_every_part_has_its_place_in_the_order() -> None:
    assert {part_of(file) for file in modules()} - {"__init__", "settings"} <= set(MAY_IMPORT)


def test_the_jobs_side_needs_the_standard_library_alone() -> None:
    allowed = sys.stdlib_module_names
    wrong = [
        f"{one.place} imports {one.module}"
        for file in modules(*JOB_SIDE)
        if not file.name.startswith("s3")
        for one in imports(file)
        if one.module.partition(".")[0] not in allowed and own_part(one.module) not in (*JOB_SIDE, "__version__")
    ]
    assert wrong == []


def test_the_jobs_side_is_written_for_python_3_9() -> None:
    command = [
        sys.executable,
        "-c",
        "from vermin.main import main; main()",
        "-t=3.9-",
        "--no-tips",
        "--violations",
        "--no-parse-comments",
    ]
    checked = subprocess.run([*command, *modules(*JOB_SIDE)], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout


def old_python() -> str | None:
    """A Python 3.9 that runs."""
    places = [Path(sys.base_prefix).parent, Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    candidates = [str(python) for place in places for python in sorted(place.glob("3.9*/bin/python3.9"))]
    for candidate in [*candidates, *filter(None, [shutil.which("python3.9")])]:
        asked = subprocess.run([candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True)
        if asked.stdout.strip() == b"(3, 9)":
            return candidate
    return None


def test_the_jobs_side_loads_in_python_3_9_and_brings_in_nothing_else() -> None:
    # given a real Python 3.9 without any of our libraries
    python = old_python()
    if python is None:
        pytest.skip("no Python 3.9 is installed here")
    # when it imports every module of the job's side
    names = [
        ".".join(("prefect_dispatch", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for file in modules(*JOB_SIDE)
        if not file.name.startswith("s3")
    ]
    program = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "print(*(name for name in ('pydantic', 'prefect', 'asyncio') if name in sys.modules))"
    )
    loaded = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", program, PACKAGE.parent, *names],
        capture_output=True,
        text=True,
        timeout=60,
    )
    # then all load without a warning, and nothing heavy came along
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == ""
    assert len(names) > 10


def test_formats_and_model_know_no_clock_and_no_file() -> None:
    # given every call and attribute in format/ and model/
    wrong = []
    for file in modules(*PURE):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.Call) and IMPURE.fullmatch(ast.unparse(node.func)):
                wrong.append((file.relative_to(PACKAGE).parts, ast.unparse(node.func)))
    # then nothing asks the world, but for what makes tokens and nonces
    assert [f"{'/'.join(place)}: {call}" for place, call in wrong if place != MADE_FROM_CHANCE] == []
    assert {call for place, call in wrong if place == MADE_FROM_CHANCE} <= {"os.urandom", "os.urandom(8).hex"}


@pytest.mark.parametrize("call", ["datetime.now(UTC)", "time.time()", "open('x')", "os.getcwd()", "path.read_text()"])
def test_what_would_be_impure_is_seen(call: str) -> None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert IMPURE.fullmatch(ast.unparse(node.func))


def test_no_file_is_longer_than_600_lines() -> None:
    tests = sorted(Path(__file__).resolve().parents[1].rglob("*.py"))
    lengths = {file.name: len(file.read_text().splitlines()) for file in [*modules(), *tests]}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


@needs_tree
@pytest.mark.parametrize("name", ["flows", "tasks", "blocks"])
def test_the_top_of_the_repository_shows_the_parts(name: str) -> None:
    link = TREE / name
    assert link.is_symlink()
    assert link.readlink() == Path("src/prefect_dispatch") / name
    assert link.is_dir()


@needs_tree
@pytest.mark.parametrize(
    "line", ["import flows", "from tasks import execute", "import blocks.resolve", "import prefect._internal"]
)
def test_a_link_is_never_imported(line: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", "src/prefect_dispatch/cli/x.py", "-"],
        input=f'"""Some module."""\n\n{line}\n',
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 1
    assert "TID251" in checked.stdout


@needs_tree
@pytest.mark.parametrize(
    "checker",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["pyright", "--pythonpath", sys.executable],
    ],
    ids=["ruff", "format", "mypy", "pyright"],
)
def test_checkers_find_nothing(checker: list[str]) -> None:
    checked = subprocess.run([sys.executable, "-m", *checker], cwd=TREE, capture_output=True, text=True, timeout=280)
    assert checked.returncode == 0, checked.stdout + checked.stderr


DOCUMENTS = [
    document for document in [TREE / "README.md", *sorted((TREE / "docs").glob("**/*.md"))] if document.exists()
]


@needs_tree
@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(document.relative_to(TREE)) for document in DOCUMENTS])
def test_links_of_the_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []
