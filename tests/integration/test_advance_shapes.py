"""Advance over the in-memory scheduler in each shape, with a clock that stands: jobs come to their end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import HoldLifted, LiftedBy, Outcome, Resolution, StopRequested
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING, Shape
from prefect_dispatch.testing.scripted_answer import hangs, times_out
from support.settling import settle

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
every_shape = pytest.mark.parametrize(
    "shape", [SLURM, SLURM_WITHOUT_ACCOUNTING, KUBERNETES], ids=["slurm", "slurmctld", "kubernetes"]
)


class Site:
    """One lineage, a scheduler in a shape with three nodes, and a supervisor that comes by at each poll."""

    def __init__(self, shape: Shape, **spec: object) -> None:
        self.clock = ManualClock()
        self.scheduler = MemoryScheduler(self.clock.now, shape, slots=3)
        store, index = MemoryStore(), MemoryStore()
        record = Record(store, index.ledger("open"), "digits", self.clock)
        record.append(plain_opening(shape.capabilities, root_visible=False, **spec))
        self.supervisor = Supervisor(record, self.scheduler, None, self.clock)

    async def settle(self) -> LineageState:
        """Advance until nothing moves."""
        return (await settle(self.supervisor)).state

    async def watch(self, time: timedelta) -> LineageState:
        """Let time pass, with a poll at each interval."""
        interval = self.scheduler.capabilities.poll_interval
        for _ in range(time // interval):
            self.clock.turn(interval)
            await self.settle()
        return await self.settle()

    async def preempt(self) -> None:
        self.scheduler.preempt(self.scheduler.object_of((await self.settle()).newest.token))

    async def exit(self, code: int = 0) -> None:
        self.scheduler.exit(self.scheduler.object_of((await self.settle()).newest.token), code)

    def assert_never_submitted_twice(self) -> None:
        """One call for each submission, and at most one object of each."""
        assert set(self.scheduler.submit_calls.values()) == {1}
        assert all(len(self.scheduler.objects(token)) <= 1 for token in self.scheduler.submit_calls)


def ran(state: LineageState) -> list[str]:
    """Every execution and its cause."""
    return [
        f"{each.epoch(run.restart)} {run.ended.cause if run.ended else run.state}" for each, run in state.executions
    ]


@pytest.mark.parametrize("shape", [SLURM, SLURM_WITHOUT_ACCOUNTING], ids=["slurm", "slurmctld"])
async def test_slurm_runs_a_preempted_job_again_and_it_is_not_resubmitted(shape: Shape) -> None:
    # given a job that is preempted twice, polled while the count shows the next run and the old one still saves
    site = Site(shape)
    for _ in range(2):
        await site.watch(10 * MINUTE)
        await site.preempt()
        assert (await site.settle()).newest.newest.state is ObjectState.ENDING

    # when it goes on to its end
    await site.watch(10 * MINUTE)
    await site.exit()
    state = await site.watch(MINUTE)

    # then one object had three runs
    assert ran(state) == ["g0n1r0 preempted", "g0n1r1 preempted", "g0n1r2 completed"]
    assert state.finished.outcome is Outcome.SUCCEEDED
    assert site.scheduler.submit_calls.total() == 1
    assert site.scheduler.requeue_calls == []


async def test_kubernetes_has_a_preempted_job_resubmitted() -> None:
    # given a job that is preempted twice
    site = Site(KUBERNETES)
    for _ in range(2):
        await site.watch(10 * MINUTE)
        await site.preempt()
        await site.watch(MINUTE)

    # when it goes on to its end
    await site.exit()
    state = await site.watch(MINUTE)

    # then three objects had a run each
    assert ran(state) == ["g0n1r0 preempted", "g0n2r0 preempted", "g0n3r0 completed"]
    assert state.finished.outcome is Outcome.SUCCEEDED
    site.assert_never_submitted_twice()


async def test_where_slurm_cancels_what_it_preempts_the_restart_that_never_comes_is_waited_for_and_replaced() -> None:
    # given a job on a partition whose PreemptMode is CANCEL
    site = Site(replace(SLURM, restarts_by_itself=False))
    await site.watch(MINUTE)
    await site.preempt()

    # when less than the bound of a restart has passed
    waiting = await site.watch(4 * MINUTE)
    assert [each.n for each in waiting.submissions] == [1]

    # then it is replaced after it, and only then
    await site.watch(2 * MINUTE)
    await site.exit()
    state = await site.watch(MINUTE)
    assert ran(state) == ["g0n1r0 preempted", "g0n2r0 completed"]
    site.assert_never_submitted_twice()


async def test_a_restart_that_comes_when_its_bound_is_over_is_stopped_and_the_job_goes_on() -> None:
    # given a preempted job whose restart was waited for in vain
    site = Site(replace(SLURM, restarts_by_itself=False))
    state = await site.watch(MINUTE)
    await site.preempt()
    await site.watch(5 * MINUTE)

    # when it is run again by an admin just before it is replaced
    site.scheduler.restart(state.newest.object)
    state = await site.watch(10 * MINUTE)

    # then that restart was stopped before it began, and its stop is nobody's wish for the job to end
    assert ran(state) == ["g0n1r0 preempted", "g0n1r1 stopped", "g0n2r0 running"]
    assert site.scheduler.living() == {state.newest.attempt(0)}
    site.assert_never_submitted_twice()


@every_shape
async def test_a_lost_node_is_replaced_while_its_processes_live_on(shape: Shape) -> None:
    # given a job whose node drops off the network
    site = Site(shape)
    await site.watch(MINUTE)
    site.scheduler.lose_node("node-1")

    # when the scheduler has given the node up
    state = await site.watch(20 * MINUTE)

    # then its successor runs beside it
    successor = "g0n1r1 running" if shape.restarts_by_itself else "g0n2r0 running"
    assert ran(state)[1:] == [successor]
    old = state.submissions[0].attempt(0)
    assert site.scheduler.living() == {old, state.newest.attempt(state.newest.newest.restart)}

    # and comes to its end, whether the old one is gone by then or not
    await site.exit()
    state = await site.watch(MINUTE)
    assert state.finished.outcome is Outcome.SUCCEEDED
    assert site.scheduler.living() == {old}
    site.assert_never_submitted_twice()


async def test_an_end_that_nobody_saw_is_in_slurms_accounting() -> None:
    # given a job that ended and was purged while there was no supervisor
    site = Site(SLURM)
    await site.watch(MINUTE)
    await site.exit()
    site.clock.turn(24 * HOUR)

    # when one comes
    state = await site.settle()

    # then it learns how
    assert ran(state) == ["g0n1r0 completed"]
    assert state.finished.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("shape", [SLURM_WITHOUT_ACCOUNTING, KUBERNETES], ids=["slurmctld", "kubernetes"])
async def test_an_end_that_nobody_saw_and_nothing_accounts_for_is_vanished_and_never_success(shape: Shape) -> None:
    # given a job that ended with 0 and was purged while there was no supervisor
    site = Site(shape)
    await site.watch(MINUTE)
    await site.exit()
    site.clock.turn(24 * HOUR)

    # when one comes, then one answer without the object is not enough
    assert ran(await site.settle()) == ["g0n1r0 running"]

    # and after two of them, a bound apart, the job runs again
    state = await site.watch(5 * MINUTE)
    assert ran(state) == ["g0n1r0 vanished", "g0n2r0 running"]
    site.assert_never_submitted_twice()


@pytest.mark.parametrize("shape", [SLURM_WITHOUT_ACCOUNTING, KUBERNETES], ids=["slurmctld", "kubernetes"])
async def test_a_submission_that_may_have_been_and_gone_holds_for_a_person(shape: Shape) -> None:
    # given a submit call without an answer, and an object that landed, ran and was purged meanwhile
    site = Site(shape)
    site.scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=10)))
    await site.supervisor.advance()
    (token,) = site.scheduler.submit_calls
    site.clock.turn(MINUTE)
    site.scheduler.exit(site.scheduler.object_of(token))
    site.clock.turn(24 * HOUR)

    # when a supervisor looks for it, then it holds for as long as nobody decides
    state = await site.watch(HOUR)
    assert state.hold is not None and "cannot tell" in state.hold.opened.why
    assert site.scheduler.submit_calls.total() == 1

    # and a person's word gives it up
    lifted = HoldLifted(hold=state.hold.opened.hold, lifted_by=LiftedBy.PERSON, resolution=Resolution.RUN_AGAIN)
    await site.supervisor.append(lifted)
    state = await site.watch(5 * MINUTE)
    assert ran(state) == ["g0n2r0 running"]
    site.assert_never_submitted_twice()


@every_shape
@pytest.mark.parametrize("answer", [times_out, hangs])
async def test_a_submission_without_an_answer_is_adopted_when_it_lands(shape: Shape, answer) -> None:
    # given a submit call without an answer, whose object lands within the bound
    impatient = shape.capabilities.model_copy(update={"submit_bound": timedelta(seconds=0.05)})
    site = Site(replace(shape, capabilities=impatient))
    site.scheduler.script_submit(answer(takes_effect_after=MINUTE))
    await site.supervisor.advance()
    assert ran(await site.settle()) == []

    # when it turns up
    await site.watch(3 * MINUTE)
    await site.exit()
    state = await site.watch(MINUTE)

    # then it was the job
    assert ran(state) == ["g0n1r0 completed"]
    assert site.scheduler.submit_calls.total() == 1


@every_shape
async def test_an_object_that_lands_after_every_bound_is_stopped(shape: Shape) -> None:
    # given a submit call without an answer, whose object lands an hour later
    site = Site(shape)
    site.scheduler.script_submit(times_out(takes_effect_after=HOUR))
    await site.supervisor.advance()
    (late,) = site.scheduler.submit_calls

    # when the job has run on in its next submission until then
    await site.watch(50 * MINUTE)
    state = await site.watch(20 * MINUTE)

    # then the late one was stopped, and does not decide anything
    assert ran(state) == ["g0n1r0 stopped", "g0n2r0 running"]
    assert {stopped for stopped, _ in site.scheduler.stop_calls} == {site.scheduler.object_of(late)}
    site.assert_never_submitted_twice()


@every_shape
async def test_an_outage_of_an_hour_changes_nothing(shape: Shape) -> None:
    # given a running job, and a scheduler that cannot be reached for an hour
    site = Site(shape)
    before = ran(await site.watch(MINUTE))
    site.scheduler.outage = SchedulerError("Unable to contact slurm controller (connect failure)")
    during = await site.watch(HOUR)
    site.scheduler.outage = None

    # when it ends in its own time
    await site.exit()
    state = await site.watch(MINUTE)

    # then nothing was made of the outage
    assert ran(during) == before
    assert ran(state) == ["g0n1r0 completed"]
    assert site.scheduler.submit_calls.total() == 1


@every_shape
async def test_a_stop_ends_a_job_that_the_scheduler_is_about_to_run_again(shape: Shape) -> None:
    # given a job that is being preempted
    site = Site(shape)
    await site.watch(MINUTE)
    await site.preempt()
    await site.settle()

    # when somebody stops it
    await site.supervisor.append(StopRequested(intent="abandon", who="someone"))
    state = await site.watch(10 * MINUTE)

    # then it never runs again
    assert state.finished.outcome is Outcome.STOPPED
    assert len(site.scheduler.processes) == 1
    site.assert_never_submitted_twice()


@pytest.mark.parametrize("shape", [SLURM, SLURM_WITHOUT_ACCOUNTING], ids=["slurm", "slurmctld"])
async def test_restarts_between_two_polls_count_and_a_spent_budget_holds(shape: Shape) -> None:
    # given a job with a budget of two, which Slurm preempts and runs again twice while nobody looks
    site = Site(shape, recovery={"preempted": {"action": "requeue", "budget": 2}})
    state = await site.watch(MINUTE)
    for _ in range(2):
        site.scheduler.preempt(state.newest.object)
        site.clock.turn(10 * MINUTE)

    # when a supervisor looks, then both count, and the scheduler may not run it again
    state = await site.watch(MINUTE)
    assert ran(state) == ["g0n1r0 preempted", "g0n1r1 preempted", "g0n1r2 running"]
    assert state.spent == {Cause.PREEMPTED: 2}

    # and one more is held, with nothing running behind the hold's back
    await site.preempt()
    state = await site.watch(HOUR)
    assert state.hold is not None and "budget" in state.hold.opened.why
    assert site.scheduler.living() == frozenset()
    assert site.scheduler.submit_calls.total() == 1


async def test_a_restart_that_came_in_spite_of_the_switch_is_not_the_persons_stop() -> None:
    # given a job that may be run again once more, and is resubmitted after that
    site = Site(SLURM, recovery={"preempted": {"action": "requeue", "budget": 3}, "no_progress": 2})
    state = await site.watch(MINUTE)

    # when it is preempted just as the switch is turned off, too late for the restart that is under way
    site.scheduler.preempt(state.newest.object)
    await site.scheduler.set_restarts(state.newest.object, False)
    state = await site.watch(20 * MINUTE)

    # then the restart is the job, and goes on to its end
    assert ran(state) == ["g0n1r0 preempted", "g0n1r1 running"]
    await site.exit()
    state = await site.watch(MINUTE)
    assert state.finished.outcome is Outcome.SUCCEEDED
    site.assert_never_submitted_twice()
