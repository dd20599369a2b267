"""Advance and what comes late: calls that were given up, answers that took long, objects that turn up during a hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from prefect_dispatch.errors import Ambiguous, SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import HoldLifted, LiftedBy, Outcome, Resolution, StopRequested
from prefect_dispatch.model.observation import Exit, ObjectRef
from prefect_dispatch.model.state import Landing
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.drive import ExecutionOver, Happening, JobOver, drive
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_answer import accepts, times_out
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle


class SlowScheduler(ScriptedScheduler):
    """A scheduler whose answers are on their way for a while, by the clock that the test turns."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock.now)
        self.clock = clock
        self.on_its_way = timedelta(0)

    async def find(self, token):
        found = await super().find(token)
        self.clock.turn(self.on_its_way)
        return found

    async def observe(self, objects):
        answers = await super().observe(objects)
        self.clock.turn(self.on_its_way)
        return answers


class SlowStore(MemoryStore):
    """A store in which a write takes as long as the test says."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.write_takes = timedelta(0)

    def write(self, path, content):
        super().write(path, content)
        self.clock.turn(self.write_takes)


class Stage:
    """One lineage, a slow scheduler and a slow store."""

    def __init__(self, **spec) -> None:
        self.clock = ManualClock()
        self.scheduler = SlowScheduler(self.clock)
        self.store, self.index = SlowStore(self.clock), MemoryStore()
        self.record().append(plain_opening(root_visible=False, **spec))
        self.supervisor = Supervisor(self.record(), self.scheduler, None, self.clock)

    def record(self) -> Record:
        return Record(self.store, self.index.ledger("open"), "digits", self.clock)

    async def settle(self):
        return (await settle(self.supervisor)).state

    async def held_over_a_submission_that_never_landed(self, lands_after: timedelta):
        """A budget of one launch, and two submissions that were given up, the second of which lands late."""
        self.scheduler.script_submit(times_out(None), times_out(lands_after))
        for _ in range(3):
            await self.settle()
            self.clock.turn(timedelta(minutes=5))
        state = await self.settle()
        assert state.hold is not None and state.newest.landing is Landing.ABANDONED
        return state


ONCE = {"recovery": {"launch_failed": {"action": "resubmit", "budget": 1}}}


async def test_a_submission_that_was_decided_too_long_ago_is_not_made():
    # given a process that stands still once it has written down its intent
    stage = Stage()
    stage.store.write_takes = SCRIPTED.submit_bound
    # when
    advanced = await stage.supervisor.advance()
    # then it does not make the call that everybody takes for given up, and says so
    assert advanced.state.newest.landing is Landing.INTENDED
    assert stage.scheduler.submit_calls == {}
    assert "decided more than 60s ago" in advanced.trouble


async def test_an_answer_that_was_long_on_its_way_does_not_tell_that_an_object_vanished():
    # given an object that was accepted and cannot be seen yet
    stage = Stage()
    stage.scheduler.script_submit(accepts(takes_effect_after=SCRIPTED.observe_bound - timedelta(seconds=5)))
    await stage.settle()
    # when the second answer without it is asked for before it can be seen, and arrives after the bound
    stage.clock.turn(SCRIPTED.observe_bound - timedelta(seconds=10))
    stage.scheduler.on_its_way = timedelta(seconds=15)
    state = await stage.settle()
    # then nothing follows from it
    assert state.newest.newest is None
    stage.scheduler.on_its_way = timedelta(0)
    assert (await stage.settle()).newest.newest.state == "queued"


async def test_a_first_answer_that_was_long_on_its_way_counts_from_its_arrival():
    # given an object that is gone, and a first answer without it that takes as long as the bound
    stage = Stage()
    state = await stage.settle()
    stage.scheduler.purge(state.newest.object)
    stage.scheduler.on_its_way = SCRIPTED.observe_bound
    await stage.settle()
    # when it is asked for again at once
    stage.scheduler.on_its_way = timedelta(0)
    state = await stage.settle()
    # then the two answers are not a bound apart
    assert state.newest.newest.ended is None


async def test_a_no_that_was_asked_for_in_time_abandons_nothing_when_it_arrives_too_late():
    # given a submission that lands at the last moment
    stage = Stage()
    last = SCRIPTED.submit_bound + SCRIPTED.landing_bound
    stage.scheduler.script_submit(times_out(takes_effect_after=last))
    await stage.supervisor.advance()
    # when it is asked for before that, and the answer comes after every bound
    stage.clock.turn(last - timedelta(seconds=1))
    stage.scheduler.on_its_way = SCRIPTED.clock_skew + timedelta(seconds=10)
    state = (await stage.supervisor.advance()).state
    # then it is not abandoned, and found by the next look
    assert state.newest.landing is Landing.INTENDED
    assert (await stage.supervisor.advance()).state.newest.landing is Landing.LANDED


async def test_what_turns_up_while_the_job_is_held_is_ended_and_does_not_end_the_job():
    # given a job that is held because nothing lands, and then something does
    stage = Stage(**ONCE)
    await stage.held_over_a_submission_that_never_landed(timedelta(minutes=30))
    stage.clock.turn(timedelta(minutes=40))
    # when it is found
    state = await stage.settle()
    late = stage.scheduler.object_of(state.newest.token)
    # then it is asked to stop, its end is recorded, and the hold stays
    assert [stopped for stopped, _ in stage.scheduler.stop_calls] == [late]
    assert state.newest.newest.ended.cause is Cause.STOPPED
    assert state.hold is not None
    # and when a person has it run again, it does
    run_again(stage.record(), who="ops")
    state = await stage.settle()
    assert state.finished is None
    assert state.newest.n == 3 and state.newest.landing is Landing.LANDED


async def test_a_hold_that_is_lifted_before_the_late_object_is_stopped_goes_on_all_the_same():
    # given a late object that is found, and that it is to be ended is written down
    stage = Stage(**ONCE)
    await stage.held_over_a_submission_that_never_landed(timedelta(minutes=30))
    stage.clock.turn(timedelta(minutes=40))
    for _ in range(2):
        state = (await stage.supervisor.advance()).state
    assert state.newest.retiring == 0
    assert stage.scheduler.stop_calls == []
    # when a person lifts the hold before it is asked to stop
    run_again(stage.record(), who="ops")
    state = await stage.settle()
    # then it is stopped, and our own stop is not taken for the end of the job
    assert len(stage.scheduler.stop_calls) == 1
    assert state.finished is None
    assert state.newest.n == 3


async def test_what_turns_up_and_completes_during_a_hold_is_a_success_once_the_hold_is_lifted():
    # given a late object that does its work before the stop reaches it
    stage = Stage(**ONCE)
    await stage.held_over_a_submission_that_never_landed(timedelta(minutes=30))
    stage.clock.turn(timedelta(minutes=40))
    state = (await stage.supervisor.advance()).state
    stage.scheduler.start(state.newest.object)
    stage.scheduler.exit(state.newest.object, 0)
    state = await stage.settle()
    assert state.hold is not None
    # when
    run_again(stage.record(), who="ops")
    state = await stage.settle()
    # then it is not run a second time
    assert state.finished.outcome is Outcome.SUCCEEDED
    assert stage.scheduler.submit_calls.total() == 2


async def stopped_while_nobody_can_tell_whether_it_landed(stage: Stage, lands_after: timedelta) -> None:
    """A submission without an answer, no accounts, a hold over it, and a person who says to stop."""
    stage.scheduler.script_submit(times_out(lands_after))
    await stage.supervisor.advance()
    token = stage.record().refresh().newest.token
    stage.scheduler.find_errors[token] = Ambiguous("the accounts cannot be read")
    state = await stage.settle()
    hold = HoldLifted(hold=state.hold.opened.hold, lifted_by=LiftedBy.PERSON, resolution=Resolution.STOP, who="ops")
    await stage.supervisor.append(hold)


async def test_a_stop_reaches_an_object_that_nobody_could_account_for():
    # given a person's stop while nobody can tell whether a submission is on its way
    stage = Stage()
    await stopped_while_nobody_can_tell_whether_it_landed(stage, timedelta(seconds=50))
    assert (await stage.settle()).finished is None
    # when it lands, and the accounts are back
    stage.clock.turn(timedelta(seconds=60))
    stage.scheduler.find_errors.clear()
    state = await stage.settle()
    # then it is stopped before the job ends
    assert [stopped.token for stopped, _ in stage.scheduler.stop_calls] == [state.newest.token]
    assert state.finished.outcome is Outcome.STOPPED


async def test_a_stop_ends_a_job_whose_submission_nobody_can_account_for_after_every_bound():
    # given
    stage = Stage()
    await stopped_while_nobody_can_tell_whether_it_landed(stage, timedelta(seconds=50))
    # when nothing can be on its way any more, and still nobody can tell
    stage.clock.turn(timedelta(minutes=5))
    state = await stage.settle()
    # then the person's word decides
    assert state.newest.landing is Landing.ABANDONED
    assert state.finished.outcome is Outcome.STOPPED


def standing_still_before_its_call(stage: Stage, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Have the next submit reach the scheduler only after something else has happened."""
    submit = stage.scheduler.submit

    async def late(request):
        stage.scheduler.submit = submit
        await meanwhile()
        return await submit(request)

    stage.scheduler.submit = late


async def ended_by_somebody_else(stage: Stage) -> None:
    """A person's stop, every bound, and another supervisor that ends the job."""
    other = Supervisor(stage.record(), stage.scheduler, None, stage.clock)
    await other.append(StopRequested(intent="abandon", who="ann"))
    stage.clock.turn(timedelta(minutes=10))
    while not (await other.advance()).state.finished:
        stage.clock.turn(timedelta(seconds=10))


async def driven(stage: Stage) -> Happening:
    async def nothing(_):
        pass

    while True:
        happening = await asyncio.wait_for(drive(stage.supervisor, carrier=None, after_each=nothing), 10)
        if not isinstance(happening, ExecutionOver):
            return happening


async def test_an_author_that_stood_still_until_the_job_was_over_stops_what_its_call_made():
    # given a process that stands still right before its call, until the job has been stopped and is over
    stage = Stage()
    standing_still_before_its_call(stage, lambda: ended_by_somebody_else(stage))

    # when it goes on
    happening = await driven(stage)

    # then what it made is told and stopped before it goes away
    state = stage.record().refresh()
    assert isinstance(happening, JobOver) and state.finished.outcome is Outcome.STOPPED
    assert state.newest.object is not None
    assert stage.scheduler.stop_calls == [(state.newest.object, None)]


async def test_an_author_whose_late_call_got_no_answer_looks_for_what_it_made_after_the_end():
    # given a call that is made after the job was over, lands later still, and gets no answer
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=50)))
    standing_still_before_its_call(stage, lambda: ended_by_somebody_else(stage))

    # when
    await driven(stage)

    # then it is found and stopped all the same
    state = stage.record().refresh()
    assert [stopped.token for stopped, _ in stage.scheduler.stop_calls] == [state.newest.token]


async def test_an_author_whose_stop_fails_asks_again_before_it_goes_away():
    # given an object that nobody wants, and a scheduler that fails the first time
    stage = Stage()
    standing_still_before_its_call(stage, lambda: ended_by_somebody_else(stage))
    stop, failed = stage.scheduler.stop, []

    async def fails_once(object, how):
        if not failed:
            failed.append(object)
            raise SchedulerError("the scheduler does not answer")
        await stop(object, how)

    stage.scheduler.stop = fails_once

    # when
    await driven(stage)

    # then
    assert [stopped for stopped, _ in stage.scheduler.stop_calls] == failed != []


async def test_a_requeue_that_comes_after_the_end_is_stopped():
    # given a process that stands still right before it has an object run again, until the job is over
    stage = Stage(recovery={"failed": {"action": "requeue", "budget": 3}})
    state = await stage.settle()
    stage.scheduler.start(state.newest.object)
    await stage.settle()
    stage.scheduler.end(state.newest.object, None, Exit(code=1))
    requeue = stage.scheduler.requeue

    async def late(object, restart):
        await ended_by_somebody_else(stage)
        stage.scheduler.stop_calls.clear()
        await requeue(object, restart)

    stage.scheduler.requeue = late

    # when it goes on
    await driven(stage)

    # then what it made run again is stopped
    assert stage.scheduler.stop_calls == [(state.newest.object, None)]


async def before_the_last_restart(stage: Stage) -> ObjectRef:
    """An object in its first restart, whose next one would be the last that the budget allows."""
    advanced = await stage.supervisor.advance()
    reference = stage.scheduler.object_of(advanced.state.newest.token)
    stage.scheduler.start(reference)
    await stage.settle()
    stage.scheduler.restart(reference)
    while advanced.state.newest.newest is None or advanced.state.newest.newest.restart == 0:
        advanced = await stage.supervisor.advance()
    stage.scheduler.start(reference)
    return reference


TWO_RESTARTS = {"preempted": {"action": "requeue", "budget": 2}}


async def test_a_switch_that_is_turned_off_in_time_is_noted() -> None:
    stage = Stage(recovery=TWO_RESTARTS)
    await before_the_last_restart(stage)

    state = await stage.settle()

    assert state.newest.restarts_forbidden and not state.newest.may_restart


async def test_a_switch_that_is_turned_off_while_an_object_is_ending_may_come_too_late() -> None:
    # given an object that the scheduler is ending already when its restarts are forbidden
    stage = Stage(recovery=TWO_RESTARTS)
    reference = await before_the_last_restart(stage)
    stage.scheduler.begin_ending(reference)
    # when that is done
    state = await stage.settle()
    # then it may run again all the same, and is retired before another takes its place
    assert state.newest.may_restart and not state.newest.restarts_forbidden
    stage.scheduler.end(reference, Cause.PREEMPTED)
    await stage.settle()
    stage.clock.turn(SCRIPTED.restart_bound + timedelta(seconds=1))
    state = await stage.settle()
    assert state.newest.n == 2 and state.submission(0, 1).retired


async def test_an_object_that_vanishes_before_its_switch_is_turned_off_is_told() -> None:
    # given an object that is not there any more when its restarts are to be forbidden
    stage = Stage(recovery=TWO_RESTARTS)
    reference = await before_the_last_restart(stage)
    stage.scheduler.purge(reference)
    # when two full answers, a bound apart, do not know it
    await stage.settle()
    stage.clock.turn(SCRIPTED.observe_bound + timedelta(seconds=1))
    state = await stage.settle()
    # then it has vanished
    assert state.submission(0, 1).newest.ended.cause is Cause.VANISHED
