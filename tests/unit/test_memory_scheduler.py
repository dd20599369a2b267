"""The in-memory scheduler has the peculiarities of its shape, by the clock alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import Ambiguous, SchedulerError
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING, Shape
from prefect_dispatch.testing.scripted_answer import accepts, times_out

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SHAPES = [SLURM, SLURM_WITHOUT_ACCOUNTING, KUBERNETES]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["slurm", "slurmctld", "kubernetes"])


class Bench:
    """A scheduler in a shape, with two slots, and the clock that it goes by."""

    def __init__(self, shape: Shape, slots: int = 2) -> None:
        self.clock = ManualClock()
        self.scheduler = MemoryScheduler(self.clock.now, shape, slots)

    async def submit(self, time_limit: timedelta | None = None, restarts_allowed: bool = True) -> ObjectRef:
        resources = Resources(time_limit=time_limit)
        request = plain_request(Path("/"), "train", resources=resources, restarts_allowed=restarts_allowed)
        return await self.scheduler.submit(request)

    async def look(self, object: ObjectRef) -> Observation:
        return (await self.scheduler.observe([object]))[object]

    async def state(self, object: ObjectRef) -> tuple[ObjectState, int]:
        observation = await self.look(object)
        return observation.state, observation.restart

    def turn(self, by: timedelta) -> None:
        self.clock.turn(by)


async def test_what_waits_starts_first_in_first_out_on_a_node_of_its_own() -> None:
    # given three jobs for two slots
    bench = Bench(KUBERNETES)
    first, second, third = [await bench.submit() for _ in range(3)]
    assert [(await bench.look(each)).nodes for each in (first, second, third)] == [("node-1",), ("node-2",), ()]

    # when the second has ended
    bench.scheduler.exit(second)

    # then the third has its place
    assert (await bench.look(third)).nodes == ("node-2",)


async def test_without_slots_nothing_starts_by_itself() -> None:
    clock = ManualClock()
    scheduler = MemoryScheduler(clock.now, SLURM)
    object = await scheduler.submit(plain_request(Path("/"), "train"))

    clock.turn(timedelta(days=1))

    assert (await scheduler.observe([object]))[object].state is ObjectState.QUEUED
    assert scheduler.next_due() is None


async def test_slurms_count_rises_before_the_old_run_is_over() -> None:
    # given a job that Slurm preempts
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.preempt(object)

    # then, while its processes have their grace, the count is the next run's
    for passes in (timedelta(0), 29 * SECOND):
        bench.turn(passes)
        assert await bench.state(object) == (ObjectState.ENDING, 1)
        assert (await bench.look(object)).ended == ()
        assert bench.scheduler.living() == {f"{object.token}-0"}

    # and once it is over, the run before has its end and the next one waits
    bench.turn(SECOND)
    waiting = await bench.look(object)
    assert (waiting.state, waiting.restart) == (ObjectState.QUEUED, 1)
    assert [(end.restart, end.cause) for end in waiting.ended] == [(0, Cause.PREEMPTED)]
    assert waiting.ended[0].ended_at == bench.clock.now()

    # and it runs when its credential's time is over, not before
    bench.turn(SLURM.restart_delay - SECOND)
    assert await bench.state(object) == (ObjectState.QUEUED, 1)
    bench.turn(SECOND)
    assert await bench.state(object) == (ObjectState.RUNNING, 1)


async def test_a_kubernetes_job_is_never_run_again() -> None:
    bench = Bench(KUBERNETES)
    object = await bench.submit()

    bench.scheduler.preempt(object)

    assert await bench.state(object) == (ObjectState.ENDING, 0)
    bench.turn(10 * MINUTE)
    seen = await bench.look(object)
    assert (seen.state, seen.restart, seen.ended[0].cause) == (ObjectState.ENDED, 0, Cause.PREEMPTED)
    with pytest.raises(ValueError, match="may not be restarted"):
        bench.scheduler.restart(object)


async def test_processes_live_on_after_the_scheduler_said_that_they_ended() -> None:
    # given a preempted job whose end was told
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.preempt(object)
    told = SLURM.ending_for or timedelta(0)
    bench.turn(told)
    assert await bench.state(object) == (ObjectState.QUEUED, 1)

    # then its processes live until the linger is over, and their ends can be looked up
    bench.turn(SLURM.linger - SECOND)
    assert bench.scheduler.living() == {f"{object.token}-0"}
    bench.turn(SECOND)
    assert bench.scheduler.living() == frozenset()
    lived = bench.scheduler.processes[f"{object.token}-0"]
    assert lived.ended_at is not None
    assert lived.ended_at - lived.began_at == told + SLURM.linger
    assert lived.noticed_at == lived.began_at


@every_shape
async def test_processes_of_a_lost_node_live_until_it_is_back(shape: Shape) -> None:
    # given a job on a node that drops off the network
    bench = Bench(shape)
    object = await bench.submit()
    bench.scheduler.lose_node("node-1")

    # then nobody notices for a while
    bench.turn(shape.node_lost_after - SECOND)
    assert await bench.state(object) == (ObjectState.RUNNING, 0)

    # and when it is given up, the old run goes on beside whatever comes next
    bench.turn(SECOND)
    seen = await bench.look(object)
    if shape.restarts_by_itself:
        assert (seen.state, seen.restart) == (ObjectState.QUEUED, 1)
        bench.turn(shape.restart_delay)
        assert (await bench.look(object)).nodes == ("node-2",)
        assert bench.scheduler.living() == {f"{object.token}-0", f"{object.token}-1"}
    else:
        assert [(end.restart, end.cause) for end in seen.ended] == [(0, Cause.NODE_LOST)]
        assert bench.scheduler.living() == {f"{object.token}-0"}

    # Until its node is back
    bench.scheduler.heal("node-1")
    assert f"{object.token}-0" not in bench.scheduler.living()


async def test_a_node_that_is_back_in_time_loses_nothing() -> None:
    # given two jobs on nodes that are cut off, one of which exits meanwhile
    bench = Bench(SLURM)
    stays, exits = await bench.submit(), await bench.submit()
    for node in ("node-1", "node-2"):
        bench.scheduler.lose_node(node)
    bench.scheduler.exit(exits, 3)
    bench.turn(MINUTE)
    assert await bench.state(exits) == (ObjectState.RUNNING, 0)
    assert bench.scheduler.living() == {f"{stays.token}-0"}

    # when both are back
    for node in ("node-1", "node-2"):
        bench.scheduler.heal(node)

    # then one goes on for good and of the other is told how it exited
    assert bench.scheduler.living() == {f"{stays.token}-0"}
    bench.turn(SLURM.node_lost_after)
    assert await bench.state(stays) == (ObjectState.RUNNING, 0)
    (end,) = (await bench.look(exits)).ended
    assert end.exit is not None and end.exit.code == 3


async def test_a_stop_does_not_reach_a_node_that_is_cut_off() -> None:
    # given a job on a node that is cut off
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.lose_node("node-1")

    # when it is stopped
    await bench.scheduler.stop(object, None)

    # then it is ending until the node is given up, and its processes until the node is back
    bench.turn(SLURM.node_lost_after - SECOND)
    assert await bench.state(object) == (ObjectState.ENDING, 0)
    bench.turn(SECOND)
    assert [end.cause for end in (await bench.look(object)).ended] == [Cause.STOPPED]
    assert bench.scheduler.living() == {f"{object.token}-0"}


async def test_what_slurm_purged_is_answered_for_by_accounting() -> None:
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.exit(object)
    said = await bench.look(object)

    bench.turn(2 * MINUTE + timedelta(days=1))

    assert await bench.look(object) == said
    assert await bench.scheduler.find(object.token) == object
    with pytest.raises(SchedulerError, match="is not known"):
        await bench.scheduler.requeue(object, 1)


@pytest.mark.parametrize("shape", [SLURM_WITHOUT_ACCOUNTING, KUBERNETES], ids=["slurmctld", "kubernetes"])
async def test_what_was_purged_without_accounting_cannot_be_told_from_what_never_was(shape: Shape) -> None:
    # given a job that ended a while ago
    bench = Bench(shape)
    object = await bench.submit()
    bench.scheduler.exit(object)
    assert shape.purge_after is not None
    bench.turn(shape.purge_after - SECOND)
    assert (await bench.look(object)).state is ObjectState.ENDED

    # when its time is over
    bench.turn(SECOND)

    # then the full answer lacks it, find cannot know, a stop is nothing, and the truth is there for the test
    assert await bench.scheduler.observe([object]) == {}
    with pytest.raises(Ambiguous, match="purged"):
        await bench.scheduler.find(object.token)
    await bench.scheduler.stop(object, None)
    assert [each.ref for each in bench.scheduler.objects(object.token)] == [object]


async def test_an_object_that_runs_again_in_time_is_not_purged() -> None:
    bench = Bench(SLURM_WITHOUT_ACCOUNTING)
    object = await bench.submit()
    bench.scheduler.exit(object, 1)
    await bench.look(object)
    await bench.scheduler.requeue(object, 1)

    bench.turn(timedelta(days=1))

    assert await bench.state(object) == (ObjectState.RUNNING, 1)


async def test_without_accounting_the_ends_of_earlier_restarts_are_not_told() -> None:
    bench = Bench(SLURM_WITHOUT_ACCOUNTING)
    object = await bench.submit()
    bench.scheduler.preempt(object)

    bench.turn(10 * MINUTE)

    seen = await bench.look(object)
    assert (seen.state, seen.restart, seen.ended) == (ObjectState.RUNNING, 1, ())


async def test_a_stop_cancels_the_restart_that_is_under_way() -> None:
    # given a preempted job that Slurm is about to run again
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.preempt(object)

    # when its restarts are forbidden, it is too late; when it is stopped, it is not
    await bench.scheduler.set_restarts(object, False)
    assert await bench.state(object) == (ObjectState.ENDING, 1)
    await bench.scheduler.stop(object, None)

    # then the restart ends before it begins
    bench.turn(timedelta(days=1))
    seen = await bench.look(object)
    assert [(end.restart, end.cause) for end in seen.ended] == [(0, Cause.PREEMPTED), (1, Cause.STOPPED)]
    assert list(bench.scheduler.processes) == [f"{object.token}-0"]


@every_shape
async def test_a_stop_with_notice_waits_for_the_program(shape: Shape) -> None:
    # given two jobs that are asked to save and exit
    bench = Bench(shape)
    saves, ignores = await bench.submit(), await bench.submit()
    for object in (saves, ignores):
        await bench.scheduler.stop(object, Notice("USR1", MINUTE))
    assert bench.scheduler.processes[f"{saves.token}-0"].noticed_at == bench.clock.now()

    # when one does
    bench.turn(MINUTE)
    bench.scheduler.exit(saves, 195)

    # then its end is told at once, as stopped and with its exit; the other's when its grace is over too
    (end,) = (await bench.look(saves)).ended
    assert end.cause is Cause.STOPPED and end.exit is not None and end.exit.code == 195
    assert await bench.state(ignores) == (ObjectState.ENDING, 0)
    bench.turn(30 * SECOND)
    assert [end.cause for end in (await bench.look(ignores)).ended] == [Cause.STOPPED]


async def test_a_second_stop_without_notice_does_not_wait_any_longer() -> None:
    bench = Bench(KUBERNETES)
    object = await bench.submit()
    await bench.scheduler.stop(object, Notice("USR1", 60 * MINUTE))

    await bench.scheduler.stop(object, None)

    bench.turn(30 * SECOND)
    assert (await bench.look(object)).state is ObjectState.ENDED


@every_shape
async def test_a_time_limit_ends_what_runs(shape: Shape) -> None:
    bench = Bench(shape)
    limited, other = await bench.submit(time_limit=MINUTE), await bench.submit()

    bench.turn(2 * MINUTE)

    seen = await bench.look(limited)
    assert [(end.restart, end.cause) for end in seen.ended] == [(0, Cause.TIMED_OUT)]
    assert seen.ended[0].ended_at == bench.clock.now() - 30 * SECOND
    assert await bench.state(other) == (ObjectState.RUNNING, 0)


async def test_a_time_limit_is_each_restarts_own() -> None:
    # given a job that was preempted long before its limit
    bench = Bench(SLURM)
    object = await bench.submit(time_limit=10 * MINUTE)
    bench.turn(MINUTE)
    bench.scheduler.preempt(object)
    bench.turn(30 * SECOND + SLURM.restart_delay)
    assert await bench.state(object) == (ObjectState.RUNNING, 1)

    # when the first run's limit is over, the second runs on until it is at its own
    bench.turn(10 * MINUTE - SECOND)
    assert await bench.state(object) == (ObjectState.RUNNING, 1)
    bench.turn(SECOND)
    assert (await bench.look(object)).state is ObjectState.ENDING


async def test_the_grace_of_one_restart_is_not_the_next_ones() -> None:
    # given a preempted job that exits early in its grace, runs again and is preempted again
    bench = Bench(replace(SLURM, restart_delay=timedelta(0)))
    object = await bench.submit()
    bench.scheduler.preempt(object)
    bench.turn(10 * SECOND)
    bench.scheduler.exit(object, 1)
    assert await bench.state(object) == (ObjectState.RUNNING, 1)
    bench.scheduler.preempt(object)

    # when the first grace is over, the second is not
    bench.turn(20 * SECOND)
    assert await bench.state(object) == (ObjectState.ENDING, 2)
    bench.turn(10 * SECOND)
    assert await bench.state(object) == (ObjectState.RUNNING, 2)


async def test_all_that_is_due_happens_in_its_order_and_at_its_time() -> None:
    # given one slot, a job with a limit, and one behind it that lands later
    bench = Bench(KUBERNETES, slots=1)
    bench.scheduler.script_submit(accepts(), accepts(takes_effect_after=10 * SECOND))
    limited, behind = await bench.submit(time_limit=MINUTE), await bench.submit()
    began = bench.clock.now()

    # when nobody asks for a day
    bench.turn(timedelta(hours=1))

    # then each thing has happened when it was due
    (end,) = (await bench.look(limited)).ended
    assert end.ended_at == began + 90 * SECOND
    assert (await bench.look(behind)).started_at == end.ended_at


async def test_a_shape_may_show_objects_late() -> None:
    bench = Bench(replace(KUBERNETES, landing=10 * SECOND))
    object = await bench.submit()

    assert await bench.scheduler.find(object.token) is None
    assert await bench.scheduler.observe([object]) == {}
    assert bench.scheduler.next_due() == bench.clock.now() + 10 * SECOND
    bench.turn(10 * SECOND)
    assert await bench.scheduler.find(object.token) == object


async def test_a_submission_that_timed_out_lands_and_runs() -> None:
    bench = Bench(SLURM)
    bench.scheduler.script_submit(times_out(takes_effect_after=MINUTE))

    with pytest.raises(SchedulerError):
        await bench.submit()

    (token,) = bench.scheduler.submit_calls
    bench.turn(MINUTE)
    assert await bench.state(bench.scheduler.object_of(token)) == (ObjectState.RUNNING, 0)


@pytest.mark.parametrize(("takes_effect_after", "then"), [(MINUTE, ObjectState.ENDING), (None, ObjectState.RUNNING)])
async def test_a_stop_without_an_answer_may_take_effect_late_or_never(
    takes_effect_after: timedelta | None, then: ObjectState
) -> None:
    bench = Bench(SLURM)
    object = await bench.submit()
    bench.scheduler.script_stop(times_out(takes_effect_after))

    with pytest.raises(SchedulerError):
        await bench.scheduler.stop(object, None)

    assert (await bench.look(object)).state is ObjectState.RUNNING
    bench.turn(MINUTE)
    assert (await bench.look(object)).state is then


async def test_an_answer_that_is_partial_is_an_error_and_a_word_nobody_knows_is_unknown() -> None:
    # given two jobs, one in a state of a newer version of the scheduler
    bench = Bench(SLURM)
    plain, odd = await bench.submit(), await bench.submit()
    bench.scheduler.unknown[odd.token] = "POWER_DRAIN"

    # then it is unknown, beside one that is not
    seen = await bench.scheduler.observe([plain, odd])
    assert [(each.state, each.evidence) for each in seen.values()] == [
        (ObjectState.RUNNING, "slurm: running"),
        (ObjectState.UNKNOWN, "POWER_DRAIN"),
    ]

    # and a partial answer answers for none
    bench.scheduler.observe_error = SchedulerError("the answer ends in the middle of a line")
    with pytest.raises(SchedulerError, match="middle of a line"):
        await bench.scheduler.observe([plain, odd])


async def test_two_objects_with_one_token_have_processes_of_their_own() -> None:
    # given a submission that was handed over twice
    bench = Bench(KUBERNETES)
    request = plain_request(Path("/"), "train")
    first, second = await bench.scheduler.submit(request), await bench.scheduler.submit(request)

    # when one of them exits
    bench.scheduler.exit(first)

    # then the other lives on, and both are there to be seen
    assert bench.scheduler.living() == {f"{request.token}-0"}
    assert [each.object for each in bench.scheduler.processes.values()] == [first, second]
    assert [each.live(bench.clock.now()) for each in bench.scheduler.processes.values()] == [False, True]
    with pytest.raises(Ambiguous, match="2 objects"):
        await bench.scheduler.find(request.token)


HANDS: list[Callable[[MemoryScheduler, ObjectRef], None]] = [
    lambda scheduler, object: scheduler.start(object),
    lambda scheduler, object: scheduler.exit(object),
    lambda scheduler, object: scheduler.preempt(object),
    lambda scheduler, object: scheduler.begin_ending(object),
    lambda scheduler, object: scheduler.end(object),
]


@pytest.mark.parametrize("hand", HANDS, ids=["start", "exit", "preempt", "begin_ending", "end"])
async def test_a_hand_that_would_do_what_cannot_be_is_refused(
    hand: Callable[[MemoryScheduler, ObjectRef], None],
) -> None:
    bench = Bench(KUBERNETES)
    object = await bench.submit()
    bench.scheduler.exit(object)
    before = await bench.look(object)

    with pytest.raises(ValueError, match=f"{object} is ended"):
        hand(bench.scheduler, object)

    assert await bench.look(object) == before
