"""Faults of the disk, on real file systems: full, read-only, gone and back again; the job holds or waits, then ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.exit_codes import ExitCode
from support.crash.kill import SUPERVISOR, Kill
from support.crash.scene import Scene
from support.crash.supervisors import Supervisors
from support.disks import Disks
from support.waiting import until

REFUSED = 1 << 8
"""The wait status of a process that exited 1."""


@pytest.fixture
def apart(disks: Disks, tmp_path: Path) -> Scene:
    """A scene in the namespace, with nothing mounted yet."""
    return Scene(disks.seen(tmp_path), "folder", disks.supervisors, tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Scene]:
    """A scene on the test's own file system."""
    supervisors = Supervisors(1)
    yield Scene(tmp_path, "folder", supervisors)
    supervisors.close()


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[int]]]:
    """Carries an activation out beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def log_of(scene: Scene) -> str:
    return (scene.folder / "activations.log").read_text()


def output_of(scene: Scene) -> str:
    return "".join(path.read_text() for path in sorted((scene.folder / "state" / "objects").glob("*/log")))


def from_scratch(scene: Scene) -> int:
    return output_of(scene).count("from scratch")


def facts(scene: Scene) -> int:
    return len(list((scene.folder / "record" / "crash" / "record").glob("*")))


def published(scene: Scene) -> list[str]:
    return sorted(path.name for path in (scene.root / "pub").glob("*"))


def in_the_middle(scene: Scene, aside: Any) -> Future[int]:
    """Have the job run, until all that its program saved in the first half is published; it is not preempted yet."""
    (scene.folder / "stay").touch()
    ended: Future[int] = aside(scene.activate)
    until(lambda: ended.done() or len(published(scene)) >= 3, "three saves are published")
    assert not ended.done(), log_of(scene)
    return ended


def preempt(scene: Scene) -> None:
    (scene.folder / "stay").unlink()


def check_went_on(scene: Scene) -> None:
    """The job ended, and never began anew."""
    scene.check_end()
    assert from_scratch(scene) == 1


def test_a_full_disk_of_the_record_is_waited_for(apart: Scene, disks: Disks, aside: Any) -> None:
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
    which: str, apart: Scene, disks: Disks
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
    apart: Scene, disks: Disks, aside: Any
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


@pytest.mark.parametrize("which", ["record", "root"])
def test_a_read_only_disk_is_named_at_the_opening(which: str, apart: Scene, disks: Disks) -> None:
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


def test_a_record_that_becomes_read_only_is_waited_for(apart: Scene, disks: Disks, aside: Any) -> None:
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


def test_a_root_that_becomes_read_only_loses_nothing_that_was_published(apart: Scene, disks: Disks, aside: Any) -> None:
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


def test_a_record_that_goes_away_is_waited_for_and_not_begun_anew(plain: Scene, aside: Any) -> None:
    # given a job that runs
    ended = in_the_middle(plain, aside)
    record, away = plain.folder / "record", plain.folder / "away"
    # when its record goes away, and the scheduler has news
    record.rename(away)
    preempt(plain)
    until(lambda: "file system mounted?" in log_of(plain), "the supervisor misses it")
    # then nothing is in its place, and once it is back the same supervisor goes on
    assert not record.exists()
    away.rename(record)
    assert ended.result() == 0
    check_went_on(plain)


def test_a_record_that_is_not_there_at_the_start_is_not_begun_anew(plain: Scene) -> None:
    # given a lineage whose supervisor died, and whose record is away
    assert plain.activate(Kill(plain.scenario, SUPERVISOR, "submit")) != 0
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


def test_a_root_that_goes_away_while_the_program_runs_costs_no_published_save(plain: Scene, aside: Any) -> None:
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
def test_a_root_that_is_away_when_an_execution_starts_is_an_outage(time: int, plain: Scene, aside: Any) -> None:
    # given a supervisor that died right before it submitted
    plain.activate(Kill(plain.scenario, SUPERVISOR, "submit", time))
    root, away = plain.folder / "root", plain.folder / "away"
    root.rename(away)
    # when another one submits while the root is away
    ended = aside(plain.activate)
    until(lambda: ended.done() or "file system mounted?" in output_of(plain), "the helper says that it is not there")
    # then nothing is begun in its place, and once it is back the job goes on from where it was
    assert not root.exists()
    away.rename(root)
    assert ended.result() == 0
    check_went_on(plain)
