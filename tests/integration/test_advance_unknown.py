"""An object whose state stays unknown: it is neither success nor gone, and a person is told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from prefect_dispatch.errors import OutOfReach, SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Ended, HoldLifted, LiftedBy, Outcome, Resolution, StopRequested
from prefect_dispatch.model.observation import Exit, ObjectState
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle

BOUND = SCRIPTED.unknown_bound
WORD = "MOONWALKING"


class Touchy(ScriptedScheduler):
    """A scheduler that answers nothing at all to who asks about certain objects, and can reach none that are away."""

    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.refused: set[str] = set()
        self.away: set[str] = set()

    async def observe(self, objects):
        if refused := [each for each in objects if each.token in self.refused]:
            raise SchedulerError(f"nothing is told of {refused[0]}")
        return await super().observe(objects)

    async def stop(self, object, how):
        if object.token in self.away:
            raise OutOfReach(f"{object} is elsewhere")
        await super().stop(object, how)


class Stage:
    """A lineage whose only object runs, and a scheduler that may speak of it in words that nobody knows."""

    def __init__(self, **spec) -> None:
        self.clock = ManualClock()
        self.scheduler = Touchy(self.clock.now)
        self.store, self.index = MemoryStore(), MemoryStore()
        self.record().append(plain_opening(SCRIPTED, root_visible=False, **spec))
        self.supervisor = Supervisor(self.record(), self.scheduler, None, self.clock)

    def record(self) -> Record:
        return Record(self.store, self.index.ledger("open"), "digits", self.clock)

    def supersede(self) -> None:
        """Open the next generation; its supervisor is another one."""
        record = self.record()
        record.append(plain_opening(SCRIPTED, root_visible=False), record.refresh().generation + 1)

    async def running(self):
        state = await self.settle()
        self.scheduler.start(state.newest.object)
        return await self.settle()

    async def settle(self):
        return (await settle(self.supervisor)).state

    async def turn(self, by: timedelta):
        """Let time pass, in polls."""
        until = self.clock.now() + by
        while self.clock.now() < until:
            self.clock.turn(min(timedelta(minutes=1), until - self.clock.now()))
            state = await self.settle()
        return state

    async def unknown(self):
        """Running, and from then on unknown."""
        state = await self.running()
        self.scheduler.unknown[state.newest.token] = WORD
        await self.settle()
        return state.newest

    def lift(self, resolution: Resolution = Resolution.RUN_AGAIN) -> None:
        record = self.record()
        hold = record.refresh().hold.opened.hold
        record.append(HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=resolution))


async def test_a_person_is_told_after_a_bound_with_what_was_seen():
    # given
    stage = Stage()
    submission = await stage.unknown()
    # when
    early = await stage.turn(BOUND - timedelta(seconds=1))
    state = await stage.turn(timedelta(minutes=1))
    # then nothing is taken for its end
    assert early.hold is None
    hold = state.hold.opened
    assert (hold.object, hold.restart, hold.state_unknown) == (submission.object, 0, True)
    assert WORD in hold.why and str(submission.object) in hold.why
    assert state.newest.newest.state is ObjectState.UNKNOWN and state.newest.newest.ended is None
    assert len(state.submissions) == 1 and stage.scheduler.stop_calls == []


async def test_what_is_known_in_between_counts_anew():
    # given an object of which the scheduler speaks plainly now and then
    stage = Stage()
    submission = await stage.unknown()
    await stage.turn(BOUND - timedelta(minutes=2))
    del stage.scheduler.unknown[submission.token]
    await stage.settle()
    stage.scheduler.unknown[submission.token] = WORD
    # when
    state = await stage.turn(BOUND - timedelta(minutes=1))
    # then
    assert state.hold is None


async def test_a_scheduler_that_cannot_be_asked_is_no_unknown_object():
    # given
    stage = Stage()
    await stage.running()
    stage.scheduler.observe_error = SchedulerError("slurmctld is down")
    # when
    state = await stage.turn(2 * BOUND)
    # then
    assert state.hold is None


async def test_a_wall_clock_that_is_turned_on_does_not_hasten_it():
    # given
    stage = Stage()
    await stage.unknown()
    # when the clock shows a day later, and this process has waited a minute
    stage.clock.step(timedelta(days=1))
    state = await stage.turn(timedelta(minutes=1))
    # then
    assert state.hold is None


async def test_it_runs_again_on_a_person_s_word_after_its_end_was_asked_for():
    # given a lineage that is held for it
    stage = Stage()
    submission = await stage.unknown()
    await stage.turn(BOUND + timedelta(minutes=1))
    # when a person has looked
    run_again(stage.record(), who="ann")
    state = await stage.turn(timedelta(minutes=2))
    # then it counts as vanished, and another takes its place
    assert [each.n for each in state.submissions] == [1, 2]
    assert state.submissions[0].newest.ended.cause is Cause.VANISHED
    assert (submission.object, None) in stage.scheduler.stop_calls
    assert state.hold is None


async def test_its_budget_does_not_stand_against_a_person_s_word():
    # given a job that may not run again after it vanished
    stage = Stage(recovery={"vanished": {"action": "hold"}})
    await stage.unknown()
    await stage.turn(BOUND + timedelta(minutes=1))
    # when
    stage.lift()
    state = await stage.turn(timedelta(minutes=2))
    # then
    assert state.hold is None and len(state.submissions) == 2


async def test_nothing_is_given_up_that_is_known_again_when_the_person_answers():
    # given
    stage = Stage()
    submission = await stage.unknown()
    await stage.turn(BOUND + timedelta(minutes=1))
    # when the scheduler speaks plainly again, but has not been asked before the person's word is read
    del stage.scheduler.unknown[submission.token]
    stage.lift()
    state = await stage.settle()
    # then it goes on, and what comes of it counts
    assert state.newest.n == 1 and state.newest.newest.state is ObjectState.RUNNING
    stage.scheduler.end(submission.object, exit=Exit(code=0))
    assert (await stage.settle()).finished.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("resolution", [Resolution.FROM_SCRATCH, Resolution.STOP])
async def test_any_word_of_a_person_is_carried_out(resolution):
    # given
    stage = Stage()
    await stage.unknown()
    await stage.turn(BOUND + timedelta(minutes=1))
    # when
    stage.lift(resolution)
    state = await stage.turn(timedelta(minutes=2))
    # then
    if resolution is Resolution.STOP:
        assert state.finished.outcome is Outcome.STOPPED
    else:
        assert (state.newest.n, state.newest.base) == (2, "scratch")


async def test_a_stop_that_nobody_can_confirm_is_held_for_and_still_asked_for():
    # given a job that is to stop
    stage = Stage()
    submission = await stage.unknown()
    await stage.supervisor.append(StopRequested(intent="abandon"))
    # when
    state = await stage.turn(BOUND + timedelta(minutes=1))
    # then a person is told, and the stop goes on
    assert state.hold.opened.state_unknown and state.finished is None
    stage.scheduler.stop_calls.clear()
    await stage.turn(timedelta(minutes=2))
    assert (submission.object, None) in stage.scheduler.stop_calls


async def test_a_stop_is_over_once_the_scheduler_says_so_whatever_the_hold():
    # given
    stage = Stage()
    submission = await stage.unknown()
    await stage.supervisor.append(StopRequested(intent="abandon"))
    await stage.turn(BOUND + timedelta(minutes=1))
    # when
    del stage.scheduler.unknown[submission.token]
    state = await stage.turn(timedelta(minutes=1))
    # then
    assert state.finished.outcome is Outcome.STOPPED


async def test_a_given_up_object_does_not_keep_the_job_from_its_end():
    # given an object that was given up and is as unknown as before, and its successor
    stage = Stage()
    await stage.unknown()
    await stage.turn(BOUND + timedelta(minutes=1))
    stage.lift()
    state = await stage.turn(timedelta(minutes=2))
    # when that one has done the work
    stage.scheduler.start(state.newest.object, node="node-2")
    stage.scheduler.end(state.newest.object, exit=Exit(code=0))
    state = await stage.settle()
    # then
    assert state.finished.outcome is Outcome.SUCCEEDED


async def test_an_object_that_cannot_be_retired_is_told_of():
    # given an execution that ended, whose object the scheduler may run again, and now is in a word that nobody knows
    stage = Stage()
    state = await stage.running()
    stage.scheduler.unknown[state.newest.token] = WORD
    await stage.supervisor.append(Ended(n=1, restart=0, cause=Cause.OUT_OF_MEMORY))
    # when
    held = await stage.turn(BOUND + timedelta(minutes=1))
    stage.lift()
    state = await stage.turn(timedelta(minutes=2))
    # then
    assert held.hold.opened.state_unknown
    assert [each.n for each in state.submissions] == [1, 2]


@pytest.mark.parametrize("stops", [False, True], ids=["a success", "a stop"])
async def test_an_old_object_that_is_out_of_reach_is_held_for_once_the_new_one_is_over(stops):
    # given an old object of which nobody can tell anything, and which no call reaches
    stage = Stage()
    old = await stage.running()
    stage.scheduler.unknown[old.newest.token] = WORD
    stage.scheduler.away.add(old.newest.token)
    stage.supersede()
    new = await stage.running()
    assert new.generation == 1
    # when the new one is over
    if stops:
        await stage.supervisor.append(StopRequested(intent="abandon"))
    else:
        stage.scheduler.end(new.newest.object, exit=Exit(code=0))
    early = await stage.turn(timedelta(minutes=10))
    held = await stage.turn(BOUND)
    # then its end is known at once, and after the bound a person is asked about the old one
    assert early.newest.newest.ended is not None and early.hold is None and early.finished is None
    assert held.hold.opened.object == old.newest.object and "1 of generation 0" in held.hold.opened.why
    assert ("stop the job" in held.hold.opened.why) is stops
    # and on the person's word the job ends as it did
    stage.lift(Resolution.STOP if stops else Resolution.RUN_AGAIN)
    over = await stage.settle()
    assert over.finished.outcome is (Outcome.STOPPED if stops else Outcome.SUCCEEDED)
    assert len(over.submissions) == 1


async def test_an_object_that_cannot_be_asked_about_hides_nothing_of_another():
    # given an old object that no answer comes about, whoever else is asked about with it
    stage = Stage()
    old = await stage.running()
    stage.supersede()
    stage.scheduler.refused.add(old.newest.token)
    stage.scheduler.away.add(old.newest.token)
    new = await stage.running()
    # when the new one ends
    stage.scheduler.end(new.newest.object, exit=Exit(code=0))
    advanced = await stage.supervisor.advance()
    # then that is seen, and of the other one it is told what is wrong
    assert advanced.state.newest.newest.ended.cause is Cause.COMPLETED
    assert f"nothing is told of {old.newest.object}" in advanced.trouble
    # and once an answer comes, the job is over
    stage.scheduler.refused.clear()
    stage.scheduler.away.clear()
    assert (await stage.settle()).finished.outcome is Outcome.SUCCEEDED
