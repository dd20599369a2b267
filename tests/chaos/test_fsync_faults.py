"""fsync that fails, in a real helper: EIO is final for a save and bars its path; EINVAL of a folder is nothing."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prefect_dispatch.errors import Barred
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.names import attempt_of, decode_part, new_token
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from support.crash import failing_fsync
from support.crash.helper_command import helper_command, helper_environment
from support.crash.trainer import STEPS
from support.root_faults import faults_of

CRASH = Path(failing_fsync.__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]

FORKED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from failing_fsync import fail_fsync
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
root, attempt, path, step, broken = LineageRoot(PosixStore(Path(sys.argv[2]))), *sys.argv[3:]
if broken == "broken":
    fail_fsync()
try:
    root.publish(Epoch(0, 1, 0), attempt, path, int(step))
except DispatchError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    library = tmp_path_factory.mktemp("shim") / "failing_fsync.so"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(CRASH / "failing_fsync.c")]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.fixture
def run(shim: Path, tmp_path: Path) -> Run:
    """Runs one execution whose fsync fails for what has ``part`` in its path."""
    numbers = iter(range(1, 100))

    def start(part: str = "", number: int = errno.EIO) -> subprocess.CompletedProcess[str]:
        broken = {"LD_PRELOAD": str(shim), "FAIL_FSYNC_OF": part, "FAIL_FSYNC_WITH": str(number)} if part else {}
        return subprocess.run(
            helper_command(tmp_path, next(numbers)),
            env={**helper_environment(), **broken},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


@pytest.fixture
def root(tmp_path: Path) -> LineageRoot:
    return LineageRoot(PosixStore(tmp_path / "runs" / "crash"))


def barred(root: LineageRoot) -> list[str]:
    return [decode_part(path.name) for path in Path(root.location).glob("meta/*/barred/*")]


@pytest.mark.parametrize("part", ["/step-3/weights", "/step-3/"], ids=["of a file", "of a folder"])
def test_a_save_whose_files_do_not_reach_the_disk_is_barred_for_ever(part: str, run: Run, root: LineageRoot) -> None:
    # given a program one of whose saves the disk does not keep
    ended = run(part)
    # when the next execution looks for what to resume from, with a sound disk
    resumed = run()
    # then the first one ended with a word of its own that names the file and the way out
    assert ended.returncode == ExitCode.UNPUBLISHABLE, ended.stdout
    assert "fsync" in ended.stdout and "look at the disk and the kernel's log" in ended.stdout
    (path,) = barred(root)
    assert path.endswith("/step-3") and path not in {publication.path for publication in root.publications()}
    # and the next one goes on from the save before
    assert resumed.returncode == 0, resumed.stdout
    assert "from step 2 of g0n1r0" in resumed.stdout
    assert root.latest().publication.step == STEPS
    assert faults_of(root) == []


@pytest.mark.parametrize("part", ["/pub/", "/saves/"], ids=["pub", "the manifest's folder"])
def test_a_name_that_may_not_be_there_after_a_crash_is_no_publication(part: str, run: Run, root: LineageRoot) -> None:
    # given a disk that does not keep the names which make a save visible
    first = run(part)
    # when a later execution is to resume
    second = run()
    # then the first one said so, and neither takes it for success nor for a save
    assert first.returncode == ExitCode.UNPUBLISHABLE, first.stdout
    assert "published step" not in first.stdout and barred(root)
    named = [publication for publication in root.publications() if publication.epoch.submission == 1]
    if part == "/pub/":
        assert named and {publication.path for publication in named} <= set(barred(root))
        assert second.returncode == ExitCode.UNUSABLE_CHECKPOINT, second.stdout
        assert "failed to reach the disk" in second.stderr
    else:
        assert not named
        assert second.returncode == 0 and "from scratch" in second.stdout
    assert faults_of(root) == []


@pytest.mark.parametrize("part", ["/claims/", "/crash/exec/", "/meta/", "/crash/tmp/"])
def test_a_start_that_does_not_reach_the_disk_is_no_start(part: str, run: Run, root: LineageRoot) -> None:
    # given
    first = run(part)
    # when
    second = run()
    # then the program never ran, the line names the place, and the next execution begins where this one should have
    assert first.returncode in (ExitCode.IO_ERROR, ExitCode.STORE_UNREACHABLE), first.stdout
    assert "Input/output error; look at the disk and the kernel's log" in first.stderr
    assert second.returncode == 0 and "from scratch" in second.stdout, second.stdout + second.stderr
    assert root.latest().publication.step == STEPS
    assert faults_of(root) == []


@pytest.mark.parametrize("part", ["/pub/", "/meta/", "/claims/"])
def test_a_mount_that_cannot_sync_folders_is_taken_as_it_is(part: str, run: Run, root: LineageRoot) -> None:
    # given a mount on which fsync of a folder is EINVAL
    ended = run(part, errno.EINVAL)
    # then all is published
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [publication.step for publication in root.publications()] == list(range(1, STEPS + 1))
    assert faults_of(root) == []


def test_a_file_that_cannot_be_synced_is_no_such_mount(run: Run, root: LineageRoot) -> None:
    ended = run("/weights/", errno.EINVAL)
    assert ended.returncode == ExitCode.UNPUBLISHABLE
    assert "fsync failed: Invalid argument" in ended.stdout
    assert root.publications() == [] and barred(root)


@pytest.fixture
def execution(root: LineageRoot) -> tuple[LineageRoot, str]:
    attempt = attempt_of(new_token(), 0)
    root.prepare("record")
    root.claim(Epoch(0, 1, 0), attempt, "record", "run")
    root.start(Epoch(0, 1, 0), attempt, {})
    return root, attempt


def test_after_one_eio_of_the_kernel_a_second_success_proves_nothing(execution: tuple[LineageRoot, str]) -> None:
    # given two saves, and a process whose every fsync fails by the kernel's own word
    if not failing_fsync.can_fail_fsync():
        pytest.skip("the numbers of this machine's system calls are not known here")
    root, attempt = execution
    for step in (1, 2):
        place = Path(root.location) / "exec" / attempt / f"step-{step}"
        place.mkdir()
        (place / "weights").write_text(str(step))
    saves = [f"exec/{attempt}/step-{step}" for step in (1, 2)]

    def publish(save: str, step: int, disk: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", FORKED, str(CRASH), root.location, attempt, save, str(step), disk]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    # when the greater one is published there, and once more by another process on a disk that is sound again
    assert publish(saves[0], 1, "sound").returncode == 0
    first, again = publish(saves[1], 2, "broken"), publish(saves[1], 2, "sound")
    # then it is barred both times, in a line that says what to do, and its name is nowhere
    assert first.stderr.startswith(f"Barred: save {saves[1]!r} is barred") and "Input/output error" in first.stderr
    assert again.stderr.startswith(f"Barred: save {saves[1]!r} is barred")
    assert "write the next save to another path" in again.stderr
    assert [publication.path for publication in root.publications()] == saves[:1]
    # and neither does this process publish it
    with pytest.raises(Barred):
        root.publish(Epoch(0, 1, 0), attempt, saves[1], 2)
    latest = root.latest()
    assert latest.publication is not None and latest.publication.step == 1
    assert faults_of(root) == []
