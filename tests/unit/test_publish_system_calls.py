"""A publish makes its system calls in the order that makes it durable: traced in a real child process."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore

PUBLISH = """
import sys
from pathlib import Path
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
folder, attempt, path = sys.argv[1:]
LineageRoot(PosixStore(Path(folder))).publish(Epoch(0, 1, 0), attempt, path, 1)
"""
# strace -y writes a descriptor with what it is open on: 5</root/pub>.
_OPENED = re.compile(r"openat\(\S+<(?P<folder>[^>]*)>, \"(?P<name>[^\"]*)\", (?P<flags>\S+).* = \d+<")
_SYNCED = re.compile(r"(?:fsync|fdatasync)\(\d+<(?P<path>[^>]*)>\)\s+= 0")
_LINKED = re.compile(
    r"linkat\(\d+<(?P<from>[^>]*)>, \"(?P<old>[^\"]*)\", \d+<(?P<to>[^>]*)>, \"(?P<new>[^\"]*)\", .* = 0"
)
_RENAMED = re.compile(r"rename(?:at2?)?\(")


@pytest.fixture
def strace(tmp_path) -> str:
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    trial = subprocess.run(
        [program, "-y", "-o", str(tmp_path / "trial"), "true"], capture_output=True, text=True, timeout=60
    )
    if trial.returncode != 0:
        pytest.skip(f"strace cannot attach here: {trial.stderr.strip()}")
    return program


def trace_publish(strace: str, folder: Path, attempt: str, path: str, output: Path) -> list[str]:
    """Publish in a traced child; return the calls below the root as ``verb path``, paths relative to the root."""
    kinds = "trace=openat,fsync,fdatasync,link,linkat,rename,renameat,renameat2"
    command = [sys.executable, "-c", PUBLISH, str(folder), attempt, path]
    subprocess.run([strace, "-f", "-y", "-s", "300", "-e", kinds, "-o", str(output), *command], check=True, timeout=120)
    calls = []
    for line in output.read_text(errors="replace").splitlines():
        assert not (_RENAMED.search(line) and str(folder) in line), line
        if (call := _OPENED.search(line)) and "O_CREAT" in call["flags"] and call["folder"].startswith(str(folder)):
            assert "O_EXCL" in call["flags"], line
            calls.append(f"create {call['folder']}/{call['name']}")
        elif (call := _LINKED.search(line)) and call["to"].startswith(str(folder)):
            calls.append(f"link {call['to']}/{call['new']}")
        elif (call := _SYNCED.search(line)) and call["path"].startswith(str(folder)):
            calls.append(f"fsync {call['path']}")
    return [call.replace(f"{folder}/", "").replace(str(folder), ".") for call in calls]


def test_files_then_manifest_then_name(strace, tmp_path):
    # given a save of two files in one execution's folder, in a root where that execution has published before
    folder = tmp_path / "root"
    attempt = attempt_of(new_token(), 0)
    root = LineageRoot(PosixStore(folder))
    root.prepare("record-1")
    root.claim(Epoch(0, 1, 0), attempt, "record-1", "run-1")
    root.start(Epoch(0, 1, 0), attempt, {})
    save = f"exec/{attempt}/step-1"
    (folder / save / "deep").mkdir(parents=True)
    (folder / save / "model.bin").write_bytes(b"weights")
    (folder / save / "deep" / "state").write_bytes(b"state")

    # when another process publishes it
    calls = trace_publish(strace, folder, attempt, save, tmp_path / "trace")

    # then its files and folders are on the disk before its manifest has a name, and that before the publication has
    manifest, publication = f"meta/{attempt}/saves/", "pub/"

    def first(pattern: str, after: int = -1) -> int:
        found = [index for index, call in enumerate(calls) if index > after and re.fullmatch(pattern, call)]
        assert found, (pattern, calls)
        return found[0]

    written = first(r"create tmp/\w+\.new")
    for path in (f"{save}/model.bin", f"{save}/deep/state", f"{save}/deep", save, f"exec/{attempt}", "exec", r"\."):
        assert first(f"fsync {path}") < written
    assert first(f"fsync {save}/deep/state") < first(f"fsync {save}/deep") < first(f"fsync {save}")
    synced = first(r"fsync tmp/\w+\.new", written)
    linked = first(f"link {manifest}.*", synced)
    kept = first(f"fsync {manifest[:-1]}", linked)
    named = first(f"create {publication}.*", kept)
    assert calls[named + 1 :] == ["fsync pub", "fsync ."]


NAME_AGAIN = """
import os, sys
from prefect_dispatch.stores.posix import PosixStore
ledger = PosixStore(sys.argv[1]).ledger("names")
ledger.create("one")
os.path.exists("/here")
ledger.create("two")
os.path.exists("/there")
"""


def test_a_further_name_takes_its_own_calls_and_the_way_to_its_folder(strace, tmp_path):
    # given a store whose ledger this process has written to
    folder, output = tmp_path / "root", tmp_path / "trace"
    folder.mkdir()

    # when it creates another name
    subprocess.run([strace, "-s", "300", "-o", str(output), sys.executable, "-c", NAME_AGAIN, str(folder)], check=True)

    # then there are the four calls that make a name durable, and those that find its folder, none twice
    text = output.read_text(errors="replace")
    between = text.partition('"/here"')[2].partition('"/there"')[0].splitlines()[1:-1]
    assert [line.partition("(")[0] for line in between] == [
        "openat",
        "openat",
        "openat",
        "close",
        "fsync",
        "fsync",
        "close",
        "close",
    ], between
