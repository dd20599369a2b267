"""The scripted scheduler does what a test tells it to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scripted_answer import hangs, refuses, times_out
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler

MINUTE = timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, duration: timedelta) -> None:
        self.now += duration


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> ScriptedScheduler:
    return ScriptedScheduler(clock, linger=MINUTE)


def request(restarts_allowed: bool = True) -> SubmissionRequest:
    return plain_request(Path("/"), "true", restarts_allowed=restarts_allowed)


async def test_a_submission_that_timed_out_lands_late(clock: Clock, scheduler: ScriptedScheduler) -> None:
    # given a submission without an answer, whose object lands after a minute
    wanted = request()
    scheduler.script_submit(times_out(takes_effect_after=MINUTE))
    with pytest.raises(SchedulerError) as error:
        await scheduler.submit(wanted)
    assert not isinstance(error.value, SubmitRefused)

    # then it is not there before, and there afterwards
    clock.advance(MINUTE - timedelta(microseconds=1))
    assert await scheduler.find(wanted.token) is None
    clock.advance(timedelta(microseconds=1))
    assert await scheduler.find(wanted.token) == scheduler.object_of(wanted.token)
    assert scheduler.submit_calls[wanted.token] == 1


async def test_a_submission_that_hangs_may_never_land(clock: Clock, scheduler: ScriptedScheduler) -> None:
    wanted = request()
    scheduler.script_submit(hangs(takes_effect_after=None))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await scheduler.submit(wanted)

    clock.advance(100 * MINUTE)
    assert await scheduler.find(wanted.token) is None


async def test_answers_are_used_up_in_order(scheduler: ScriptedScheduler) -> None:
    scheduler.script_submit(refuses("no account"))

    with pytest.raises(SubmitRefused, match="no account"):
        await scheduler.submit(request())
    assert await scheduler.submit(request())


async def test_a_token_submitted_twice_is_two_objects(scheduler: ScriptedScheduler) -> None:
    wanted = request()
    await scheduler.submit(wanted)
    await scheduler.submit(wanted)

    with pytest.raises(Ambiguous, match="2 objects"):
        await scheduler.find(wanted.token)
    assert scheduler.submit_calls[wanted.token] == 2


async def test_an_outage_makes_every_call_fail_without_effect(scheduler: ScriptedScheduler) -> None:
    # given a running object
    object = await running(scheduler)
    scheduler.outage = SchedulerError("slurmctld is down")

    # when every call is made in an outage
    wanted = request()
    for call in (
        scheduler.submit(wanted),
        scheduler.find(object.token),
        scheduler.observe([object]),
        scheduler.stop(object, None),
        scheduler.set_restarts(object, False),
        scheduler.requeue(object, 1),
    ):
        with pytest.raises(SchedulerError, match="slurmctld is down"):
            await call

    # then nothing has changed after it
    scheduler.outage = None
    assert await scheduler.find(wanted.token) is None
    assert (await scheduler.observe([object]))[object].state is ObjectState.RUNNING
    scheduler.restart(object)


async def test_what_it_cannot_tell(scheduler: ScriptedScheduler) -> None:
    # given two objects
    odd, purged = await running(scheduler), await running(scheduler)

    # when a word about one is not known and the other is purged
    scheduler.unknown[odd.token] = "REVOKED"
    scheduler.purge(purged)

    # then one is unknown, the other is left out, and find cannot know
    seen = await scheduler.observe([odd, purged])
    assert {ref: (o.state, o.evidence) for ref, o in seen.items()} == {odd: (ObjectState.UNKNOWN, "REVOKED")}
    with pytest.raises(Ambiguous):
        await scheduler.find(purged.token)

    # and a partial answer is an error
    scheduler.observe_error = SchedulerError("partial answer")
    with pytest.raises(SchedulerError, match="partial"):
        await scheduler.observe([odd])


async def test_it_restarts_by_itself_and_accounting_may_miss_it(scheduler: ScriptedScheduler) -> None:
    # given an object that was restarted three times, one of them unaccounted
    object = await running(scheduler)
    scheduler.restart(object, Cause.NODE_LOST)
    scheduler.restart(object, accounted=False)
    scheduler.start(object)
    scheduler.end(object, Cause.PREEMPTED)
    scheduler.restart(object)

    # then the answer has the restart and the ends that are known
    observation = (await scheduler.observe([object]))[object]
    assert (observation.state, observation.restart) == (ObjectState.QUEUED, 3)
    assert [(end.restart, end.cause) for end in observation.ended] == [(0, Cause.NODE_LOST), (2, Cause.PREEMPTED)]


@pytest.mark.parametrize("how", ["request", "switch", "stop", "capability"])
async def test_it_does_not_restart_what_may_not(clock: Clock, how: str) -> None:
    scheduler = ScriptedScheduler(clock, SCRIPTED.model_copy(update={"requeue": how != "capability"}))
    object = await running(scheduler, restarts_allowed=how != "request")
    if how == "switch":
        await scheduler.set_restarts(object, False)
    if how == "stop":
        await scheduler.stop(object, None)

    with pytest.raises(ValueError, match="may not be restarted"):
        scheduler.restart(object)


async def test_a_requeue_without_an_answer_takes_effect_late(clock: Clock, scheduler: ScriptedScheduler) -> None:
    object = await running(scheduler)
    scheduler.end(object, Cause.PREEMPTED)
    scheduler.script_requeue(times_out(takes_effect_after=MINUTE))

    with pytest.raises(SchedulerError):
        await scheduler.requeue(object, 1)

    assert (await scheduler.observe([object]))[object].state is ObjectState.ENDED
    clock.advance(MINUTE)
    assert (await scheduler.observe([object]))[object].restart == 1
    assert scheduler.requeue_calls == [(object, 1)]


async def test_processes_linger_after_the_end(clock: Clock, scheduler: ScriptedScheduler) -> None:
    # given a job that was preempted and lives on, and its next restart
    object = await running(scheduler)
    scheduler.end(object, Cause.PREEMPTED, lingers=True)
    await scheduler.requeue(object, 1)
    scheduler.start(object)

    # then both live until the linger is over
    assert scheduler.living() == {f"{object.token}-0", f"{object.token}-1"}
    clock.advance(MINUTE)
    assert scheduler.living() == {f"{object.token}-1"}
    scheduler.end(object, exit=Exit(code=0))
    assert scheduler.living() == frozenset()


async def test_a_slow_stop_is_ending_until_it_has_ended(clock: Clock) -> None:
    scheduler = ScriptedScheduler(clock, slow_stops=True)
    object = await running(scheduler)

    await scheduler.stop(object, None)

    assert (await scheduler.observe([object]))[object].state is ObjectState.ENDING
    scheduler.end(object, Cause.STOPPED)
    assert (await scheduler.observe([object]))[object].ended[0].cause is Cause.STOPPED


async def test_a_script_that_cannot_be_is_refused(scheduler: ScriptedScheduler) -> None:
    object = await running(scheduler)
    scheduler.end(object, exit=Exit(code=0))

    with pytest.raises(ValueError, match="is ended"):
        scheduler.end(object, exit=Exit(code=1))
    with pytest.raises(KeyError, match="no object"):
        scheduler.object_of("a" * 16)


async def running(scheduler: ScriptedScheduler, restarts_allowed: bool = True) -> ObjectRef:
    object = await scheduler.submit(request(restarts_allowed))
    scheduler.start(object)
    return object
