"""A checkpoint root that is away, or was full, when an execution's end is seen."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.report import Report
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.reports import leave_report
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.finishing import ROOT_BOUND
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle


class Stage:
    """A lineage whose record is in memory and whose root lies in a folder, and one execution of it that runs."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.scheduler = ScriptedScheduler(self.clock.now)
        self.store = MemoryStore()
        self.folder = folder / "root"
        self.root = LineageRoot(PosixStore(self.folder))
        self.root.prepare("", "digits")
        self.record = Record(self.store, MemoryStore().ledger("open"), "digits", self.clock)
        self.record.append(plain_opening(SCRIPTED))
        view, reports = RootView(self.root, self.clock.now), ReportsView(self.store)
        self.supervisor = Supervisor(self.record, self.scheduler, view, self.clock, reports)
        self.attempt = ""

    async def begin(self) -> None:
        """Start the execution, which publishes a save."""
        state = (await settle(self.supervisor)).state
        self.scheduler.start(self._object(state))
        newest = (await settle(self.supervisor)).state.newest
        assert newest is not None
        self.attempt, epoch = newest.attempt(0), Epoch(0, 1, 0)
        self.root.claim(epoch, self.attempt, "", "run")
        self.root.start(epoch, self.attempt, {})
        (self.folder / "exec" / self.attempt / "step-1").write_text("weights")
        self.root.publish(epoch, self.attempt, f"exec/{self.attempt}/step-1", 1)

    async def exit(self, code: int) -> Advanced:
        """Let it exit, and look until nothing moves."""
        self.scheduler.end(self._object(await self.supervisor.read()), None, Exit(code=code))
        return await settle(self.supervisor)

    def _object(self, state: LineageState):  # type: ignore[no-untyped-def]
        assert state.newest is not None
        return self.scheduler.object_of(state.newest.token)


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    await stage.begin()
    return stage


@pytest.mark.parametrize("away", ["pub", ""], ids=["its publications", "all of it"])
async def test_the_final_save_is_told_once_the_root_is_back(stage: Stage, tmp_path: Path, away: str) -> None:
    # given a job that ends while the root, or what is published in it, was moved away
    stage.root.journal(stage.attempt).append(
        JournalKind.EXIT.value, at=1.7e9, **ExitNote(True, 0, None, 0, ExitReason.PROGRAM).fields()
    )
    await stage.supervisor.advance()
    stage.supervisor.root.published(0)  # type: ignore[union-attr]
    (stage.folder / away).rename(tmp_path / "moved")
    seen = await stage.exit(0)

    # then that is told, and nothing is written that would be there for good
    assert seen.state.finished is None and "final save cannot be told yet" in seen.trouble

    # and when it is back, the job ends with its save
    (tmp_path / "moved").rename(stage.folder / away)
    finished = (await settle(stage.supervisor)).state.finished
    assert finished is not None and finished.outcome is Outcome.SUCCEEDED
    assert finished.produced_by == stage.attempt and "could not be told" not in finished.detail


async def test_a_root_that_stays_away_does_not_keep_the_job_from_its_end(stage: Stage, tmp_path: Path) -> None:
    # given
    (stage.folder / "pub").rename(tmp_path / "moved")
    assert (await stage.exit(0)).state.finished is None

    # when a bound has passed
    stage.clock.turn(ROOT_BOUND - timedelta(seconds=1))
    assert (await settle(stage.supervisor)).state.finished is None
    stage.clock.turn(timedelta(seconds=1))
    finished = (await settle(stage.supervisor)).state.finished

    # then it ends, and says what is not known
    assert finished is not None and finished.final_save is None
    assert "its final save could not be told" in finished.detail and "pub is not there" in finished.detail


@pytest.mark.parametrize("noticed", [False, True], ids=["no room for the notice", "room for the notice alone"])
async def test_a_report_counts_where_the_root_had_no_room_for_the_last_word(stage: Stage, noticed: bool) -> None:
    # given an execution that was asked to end, and a root that took no last word of it
    if noticed:
        stage.root.journal(stage.attempt).append(JournalKind.NOTICE.value, at=1.7e9)
    note = ExitNote(True, 7, None, 7, ExitReason.PROGRAM if noticed else ExitReason.NOTICE)
    leave_report(stage.store, Report(stage.attempt, note, 0, ""))

    # when it has exited
    state = (await stage.exit(7)).state

    # then it is a preemption, and what the report tells stands in the record
    ends = [execution.ended for _, execution in state.executions if execution.ended is not None]
    assert [end.cause for end in ends] == [Cause.PREEMPTED]
    assert noticed or "after it was asked to" in ends[0].detail


async def test_the_roots_own_last_word_comes_before_a_report(stage: Stage) -> None:
    # given both
    stage.root.journal(stage.attempt).append(
        JournalKind.EXIT.value, at=1.7e9, **ExitNote(True, 7, None, 7, ExitReason.PROGRAM).fields()
    )
    leave_report(stage.store, Report(stage.attempt, ExitNote(True, 7, None, 7, ExitReason.NOTICE), 0, ""))
    # when
    state = (await stage.exit(7)).state
    # then
    assert [execution.ended.cause for _, execution in state.executions if execution.ended] == [Cause.FAILED]
