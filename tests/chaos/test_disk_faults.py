"""Faults of the disk, on real file systems: full, read-only, gone and back again; the job holds or waits, then ends."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from support.environment import environment_without
from support.root_faults import faults_of
from support.waiting import until

HERE = Path(__file__).parent
REFUSED = 1 << 8
STEPS = 6
PATIENCE = 60.0


class Disks:
    """A mount namespace of its own, whose mounts nobody else sees and which end with it.

    Attributes:
        pid: a process in it.
    """

    def __init__(self, supervisors: Any) -> None:
        self.supervisors = supervisors
        self.pid = supervisors.all[0].pid
        here = os.stat("/proc/self/ns/mnt").st_ino
        # What is mounted before that would be mounted for all of this machine.
        until(lambda: os.stat(f"/proc/{self.pid}/ns/mnt").st_ino != here, "the namespace is another one")

    def seen(self, path: Path) -> Path:
        """A path in the namespace, as others can look at it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", f"--wdns={os.getcwd()}", *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            **options,
        )

    def mount(self, *arguments: str) -> None:
        done = self.run("mount", *arguments)
        assert done.returncode == 0, done.stderr

    def small(self, folder: Path, size: str = "2m", names: int = 10_000) -> None:
        """Mount an empty disk of a limited size and number of names."""
        folder.mkdir(parents=True, exist_ok=True)
        self.mount("-t", "tmpfs", "-o", f"size={size},nr_inodes={names},mode=755", "tmpfs", str(folder))

    def fill(self, folder: Path) -> Path:
        """Take all the space of a disk; returns what takes it."""
        filler = self.seen(folder) / "filler"
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        return filler

    def freeze(self, folder: Path) -> None:
        """Make a folder read-only, whoever has it open."""
        self.mount("-o", "remount,ro", str(folder))

    def thaw(self, folder: Path) -> None:
        self.mount("-o", "remount,rw", str(folder))


def why_no_namespace() -> str | None:
    for needed in ("unshare", "nsenter", "mount"):
        if shutil.which(needed) is None:
            return f"{needed} is not installed"
    trial = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
    )
    return f"mounting takes root here: {trial.stderr.strip()}" if trial.returncode else None


@pytest.fixture
def disks(supervisors_of: Any) -> Iterator[Disks]:
    why = why_no_namespace()
    if why is not None:
        pytest.skip(why)
    supervisors = supervisors_of(1, ["unshare", "-m", "--propagation", "private"])
    yield Disks(supervisors)
    supervisors.close()


@pytest.fixture
def apart(disks: Disks, tmp_path: Path, scene_of: Any) -> Any:
    """A scene in the namespace, with nothing mounted yet."""
    return scene_of(disks.seen(tmp_path), "folder", disks.supervisors, tmp_path)


@pytest.fixture
def plain(tmp_path: Path, supervisors_of: Any, scene_of: Any) -> Iterator[Any]:
    """A scene on the test's own file system."""
    supervisors = supervisors_of(1, [])
    yield scene_of(tmp_path, "folder", supervisors)
    supervisors.close()


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[int]]]:
    """Carries an activation out beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def log_of(scene: Any) -> str:
    return (scene.folder / "activations.log").read_text()


def output_of(scene: Any) -> str:
    return "".join(path.read_text() for path in sorted((scene.folder / "state" / "objects").glob("*/log")))


def from_scratch(scene: Any) -> int:
    return output_of(scene).count("from scratch")


def facts(scene: Any) -> int:
    return len(list((scene.folder / "record" / "crash" / "record").glob("*")))


def published(scene: Any) -> list[str]:
    return sorted(path.name for path in (scene.root / "pub").glob("*"))


def in_the_middle(scene: Any, aside: Any) -> Future[int]:
    """Have the job run, until all that its program saved in the first half is published; it is not preempted yet."""
    (scene.folder / "stay").touch()
    ended: Future[int] = aside(scene.activate)
    until(lambda: ended.done() or len(published(scene)) >= 3, "three saves are published")
    assert not ended.done(), log_of(scene)
    return ended


def preempt(scene: Any) -> None:
    (scene.folder / "stay").unlink()


def check_went_on(scene: Any) -> None:
    """The job ended, and never began anew."""
    scene.check_end()
    assert from_scratch(scene) == 1


def job_environment() -> dict[str, str]:
    return {**environment_without("DISPATCH_", "SLURM_"), "DISPATCH_RESTART": "0"}


# Full


def test_a_full_disk_of_the_record_is_waited_for(apart: Any, disks: Disks, aside: Any) -> None:
    # given a job that runs, and a disk of the record that is full
    disks.small(apart.place / "record")
    ended = in_the_middle(apart, aside)
    filler, before = disks.fill(apart.place / "record"), facts(apart)
    # when the supervisor has something to write
    preempt(apart)
    until(lambda: "No space left on device; free space there" in log_of(apart), "it says that the disk is full")
    # then it names the fact, and nothing half is there
    assert f"{apart.place}/record/crash/record/{before + 1:020d}.json" in log_of(apart)
    assert facts(apart) == before
    apart.check()
    # and with space the same supervisor goes on
    filler.unlink()
    assert ended.result() == 0
    check_went_on(apart)


@pytest.mark.parametrize("which", ["record", "root"])
def test_a_disk_that_is_full_at_the_opening_is_named_and_nothing_is_opened(
    which: str, apart: Any, disks: Disks
) -> None:
    # given
    disks.small(apart.place / which)
    filler = disks.fill(apart.place / which)
    # when
    status = apart.activate()
    # then
    assert status == REFUSED
    assert f"{apart.place}/{which}" in log_of(apart) and "No space left on device; free space there" in log_of(apart)
    assert facts(apart) == 0
    # and with space it is opened
    filler.unlink()
    assert apart.activate() == 0
    check_went_on(apart)


def test_a_full_disk_of_the_root_keeps_executions_from_starting_until_there_is_space(
    apart: Any, disks: Disks, aside: Any
) -> None:
    # given a job that runs, and a disk that is full
    disks.small(apart.place / "root")
    ended = in_the_middle(apart, aside)
    before, filler = published(apart), disks.fill(apart.place / "root")
    # when it is to run again
    preempt(apart)
    until(lambda: "No space left on device; free space there" in output_of(apart), "the helper says that it is full")
    # then nothing half is there
    assert published(apart) == before
    apart.check()
    # and with space it goes on
    filler.unlink()
    assert ended.result() == 0
    check_went_on(apart)


ROOM = range(8, 80, 9)
"""Names that a disk has room for: from too few for a claim to enough for a whole execution."""
SIZES = (0, 180, 400, 1000)
"""Bytes that a file may have: from too few for any document to enough for all."""


def check_helper_was_stopped(root: LineageRoot, ended: subprocess.CompletedProcess[str], why: str) -> None:
    """An execution ended well or told in its own words what it had no room for, and nothing half is there."""
    text = ended.stdout + ended.stderr
    assert ended.returncode == 0 or why in text, text
    assert "internal error" not in text, text
    if root.store.folders(""):
        assert faults_of(root) == []


def check_goes_on(root: LineageRoot, before: list[int], ended: subprocess.CompletedProcess[str]) -> None:
    """The next execution begins where the newest save that was published ends, and comes to the same end."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (f"from step {before[-1]} of" if before else "from scratch") in ended.stdout
    latest = root.latest().publication
    assert latest is not None and latest.step == STEPS
    assert faults_of(root) == []


def steps_of(root: LineageRoot) -> list[int]:
    return [publication.step for publication in root.publications()] if os.path.isdir(root.location) else []


def test_wherever_a_helper_runs_out_of_space_nothing_half_is_there(
    disks: Disks, tmp_path: Path, submission_of: Any
) -> None:
    # given disks with room for few names, one with more than the other
    stopped: list[str] = []
    for names in ROOM:
        place = tmp_path / f"disk-{names}"
        disks.small(place, names=names)
        root = LineageRoot(PosixStore(disks.seen(place) / "runs" / "crash"))
        # when an execution runs on each, and another one once there is room
        first = disks.run(*submission_of(place, 1), env=job_environment())
        check_helper_was_stopped(root, first, "No space left on device")
        disks.mount("-o", "remount,nr_inodes=10000", str(place))
        before = steps_of(root)
        check_goes_on(root, before, disks.run(*submission_of(place, 2), env=job_environment()))
        stopped.append(f"{first.returncode} at step {before[-1:]}")
    # then they were stopped at many places, and the largest disk was large enough
    assert len(set(stopped)) >= 4, stopped
    assert stopped[-1] == f"0 at step [{STEPS}]"


def test_wherever_a_file_of_the_helper_may_not_grow_nothing_half_is_there(tmp_path: Path, submission_of: Any) -> None:
    # given limits of a file's size, as a quota has them; this part takes no privileges
    stopped: list[str] = []
    for size in SIZES:
        place = tmp_path / f"limit-{size}"
        place.mkdir()
        root = LineageRoot(PosixStore(place / "runs" / "crash"))
        # when an execution runs under each, and another one without
        first = run_limited(submission_of(place, 1), size)
        check_helper_was_stopped(root, first, "File too large")
        before = steps_of(root)
        check_goes_on(root, before, run_limited(submission_of(place, 2), resource.RLIM_INFINITY))
        stopped.append(f"{first.returncode} at step {before[-1:]}")
    # then they were stopped at several places
    assert len(set(stopped)) >= 2, stopped
    assert stopped[-1] == f"0 at step [{STEPS}]"


def run_limited(command: list[str], size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["prlimit", f"--fsize={size if size >= 0 else 'unlimited'}", *command],
        env=job_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


# Read-only


@pytest.mark.parametrize("which", ["record", "root"])
def test_a_read_only_disk_is_named_at_the_opening(which: str, apart: Any, disks: Disks) -> None:
    # given
    disks.small(apart.place / which)
    disks.freeze(apart.place / which)
    # when
    status = apart.activate()
    # then it is refused, and nothing was opened
    assert status == REFUSED
    assert f"{apart.place / which}" in log_of(apart).splitlines()[-1]
    assert facts(apart) == 0
    # and it goes as soon as it can be written
    disks.thaw(apart.place / which)
    assert apart.activate() == 0
    check_went_on(apart)


def test_a_record_that_becomes_read_only_is_waited_for(apart: Any, disks: Disks, aside: Any) -> None:
    # given
    disks.small(apart.place / "record")
    ended = in_the_middle(apart, aside)
    # when
    disks.freeze(apart.place / "record")
    preempt(apart)
    until(lambda: "Read-only file system; mount it for writing" in log_of(apart), "the supervisor says so")
    disks.thaw(apart.place / "record")
    # then
    assert ended.result() == 0
    check_went_on(apart)


def test_a_root_that_becomes_read_only_loses_nothing_that_was_published(apart: Any, disks: Disks, aside: Any) -> None:
    # given a job that runs
    disks.small(apart.place / "root")
    ended = in_the_middle(apart, aside)
    before = published(apart)
    # when nothing can be written any more, by its program or by the executions that come after
    disks.freeze(apart.place / "root")
    preempt(apart)
    until(lambda: "Read-only file system; mount it for writing" in output_of(apart), "the helper says so")
    # then
    assert published(apart) == before
    disks.thaw(apart.place / "root")
    assert ended.result() == 0
    check_went_on(apart)


# Gone, and back again


def test_a_record_that_goes_away_is_waited_for_and_not_begun_anew(plain: Any, aside: Any) -> None:
    # given a job that runs
    ended = in_the_middle(plain, aside)
    record, away = plain.folder / "record", plain.folder / "away"
    # when its record goes away, and the scheduler has news
    record.rename(away)
    preempt(plain)
    until(lambda: "is the file system of the record mounted?" in log_of(plain), "the supervisor misses it")
    # then nothing is in its place, and once it is back the same supervisor goes on
    assert not record.exists()
    away.rename(record)
    assert ended.result() == 0
    check_went_on(plain)


def test_a_record_that_is_not_there_at_the_start_is_not_begun_anew(plain: Any, kill_at: Any) -> None:
    # given a lineage whose supervisor died, and whose record is away
    assert plain.activate(kill_at(plain, "submit")) != 0
    record, away = plain.folder / "record", plain.folder / "away"
    record.rename(away)
    # when another one begins
    status = plain.activate()
    # then it is refused, naming the record that the root belongs to, and no second one is there
    assert status == REFUSED
    assert "is its file system mounted?" in log_of(plain)
    assert not record.exists()
    # and when it is back the job goes on
    away.rename(record)
    assert plain.activate() == 0
    check_went_on(plain)


def test_a_root_that_goes_away_while_the_program_runs_costs_no_published_save(plain: Any, aside: Any) -> None:
    # given a job that runs
    ended = in_the_middle(plain, aside)
    root, away = plain.folder / "root", plain.folder / "away"
    before = published(plain)
    # when its root goes away, and it is to run again meanwhile
    root.rename(away)
    preempt(plain)
    until(
        lambda: f"exit {ExitCode.STORE_UNREACHABLE:d}" in output_of(plain) or "is not there" in output_of(plain),
        "the helper misses it",
    )
    # then no other root was begun, and once it is back the job goes on
    assert not root.exists()
    away.rename(root)
    assert published(plain) == before
    assert ended.result() == 0
    check_went_on(plain)


@pytest.mark.parametrize("time", [1, 2], ids=["before its start", "between end and resume"])
def test_a_root_that_is_away_when_an_execution_starts_is_an_outage(
    time: int, plain: Any, aside: Any, kill_at: Any
) -> None:
    # given a supervisor that died right before it submitted
    plain.activate(kill_at(plain, "submit", time))
    root, away = plain.folder / "root", plain.folder / "away"
    root.rename(away)
    # when another one submits while the root is away
    ended = aside(plain.activate)
    until(lambda: ended.done() or "is not a lineage's root" in output_of(plain), "the helper says that it is not there")
    # then nothing is begun in its place, and once it is back the job goes on from where it was
    assert not root.exists()
    away.rename(root)
    assert ended.result() == 0
    check_went_on(plain)
