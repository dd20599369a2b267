"""Waits go by the waiting process's own monotonic clock, whatever the wall clocks show."""

from __future__ import annotations

from datetime import timedelta

import pytest

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Submitting
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.model.state import Landing
from prefect_dispatch.model.steps import Poll
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_answer import times_out
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle

LANDING = SCRIPTED.submit_bound + SCRIPTED.landing_bound + SCRIPTED.clock_skew
HOURS = [timedelta(hours=-5), timedelta(0), timedelta(hours=5)]
A_SECOND = timedelta(seconds=1)


class Stage:
    """A lineage, its scheduler, and supervisors whose wall clocks disagree while the same time passes for all."""

    def __init__(self, capabilities=SCRIPTED, **spec) -> None:
        self.clock = ManualClock()
        self.clocks = [self.clock]
        self.scheduler = ScriptedScheduler(self.clock.now, capabilities)
        self.store, self.index = MemoryStore(), MemoryStore()
        self._record(self.clock).append(plain_opening(capabilities, root_visible=False, **spec))

    def _record(self, clock: ManualClock) -> Record:
        return Record(self.store, self.index.ledger("open"), "digits", clock)

    def supervisor(self, ahead: timedelta = timedelta(0)) -> Supervisor:
        clock = ManualClock(self.clock.now() + ahead)
        self.clocks.append(clock)
        return Supervisor(self._record(clock), self.scheduler, None, clock)

    def turn(self, by: timedelta) -> None:
        for clock in self.clocks:
            clock.turn(by)

    async def running(self, supervisor: Supervisor):
        state = (await settle(supervisor)).state
        self.scheduler.start(state.newest.object)
        return (await settle(supervisor)).state


@pytest.mark.parametrize("ahead", HOURS)
async def test_a_submission_is_abandoned_after_its_bounds_whatever_the_clock_of_who_looks(ahead):
    # given a submission that never lands, by a supervisor that is gone
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    await stage.supervisor().advance()
    other = stage.supervisor(ahead)
    await other.advance()
    # when
    stage.turn(LANDING)
    early = (await other.advance()).state.newest.landing
    stage.turn(A_SECOND)
    late = (await other.advance()).state.newest.landing
    # then
    assert (early, late) == (Landing.INTENDED, Landing.ABANDONED)


@pytest.mark.parametrize("ahead", HOURS)
async def test_a_submission_is_abandoned_after_its_bounds_whatever_the_clock_of_its_author(ahead):
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    await stage.supervisor(ahead).advance()
    other = stage.supervisor()
    await other.advance()
    # when
    stage.turn(LANDING + A_SECOND)
    # then
    assert (await other.advance()).state.newest.landing is Landing.ABANDONED


async def test_a_clock_that_is_set_while_it_is_waited_changes_nothing():
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=LANDING - A_SECOND))
    supervisor = stage.supervisor()
    await supervisor.advance()
    # when
    stage.clocks[-1].step(timedelta(days=1))
    await supervisor.advance()
    stage.turn(LANDING)
    state = (await settle(supervisor)).state
    # then the object that came in time is taken up
    assert state.newest.landing is Landing.LANDED and state.newest.n == 1


async def test_who_takes_over_waits_for_the_bounds_itself():
    # given an intent that is an hour old, by the clocks of its author and of who looks
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    await stage.supervisor().advance()
    stage.turn(timedelta(hours=1))
    # when
    state = (await stage.supervisor().advance()).state
    # then
    assert isinstance((await stage.supervisor().entries())[-1].fact, Submitting)
    assert state.newest.landing is Landing.INTENDED


@pytest.mark.parametrize("ahead", HOURS)
async def test_a_delay_is_as_long_as_its_rule_says(ahead):
    # given an end that was recorded by another supervisor
    stage = Stage(recovery={"failed": {"action": "resubmit", "budget": 3, "delay": "10min"}})
    state = await stage.running(author := stage.supervisor())
    other = stage.supervisor(ahead)
    stage.scheduler.end(state.newest.object, exit=Exit(code=1))
    await author.advance()
    await settle(other)
    # when
    stage.turn(timedelta(minutes=10) - A_SECOND)
    early = (await settle(other)).state
    stage.turn(2 * A_SECOND)
    late = (await settle(other)).state
    # then
    assert (early.newest.n, late.newest.n) == (1, 2)


@pytest.mark.parametrize("ahead", HOURS)
async def test_the_wait_for_a_restart_is_as_long_as_its_bound(ahead):
    # given an object that the scheduler is to restart, and does not
    stage = Stage()
    state = await stage.running(author := stage.supervisor())
    stage.scheduler.end(state.newest.object, Cause.PREEMPTED)
    await author.advance()
    other = stage.supervisor(ahead)
    waiting = await settle(other)
    # when
    stage.turn(SCRIPTED.restart_bound - A_SECOND)
    early = (await settle(other)).state
    stage.turn(2 * A_SECOND)
    late = (await settle(other)).state
    # then
    assert isinstance(waiting.step, Poll) and "restart" in waiting.step.why
    assert (early.newest.n, late.newest.n) == (1, 2)


@pytest.mark.parametrize("ahead", HOURS)
async def test_too_long_in_the_queue_is_so_long_whatever_the_clock(ahead):
    # given
    stage = Stage(max_pending="2h")
    await settle(stage.supervisor())
    other = stage.supervisor(ahead)
    await settle(other)
    # when
    stage.turn(timedelta(hours=2) - A_SECOND)
    early = (await settle(other)).state
    stage.turn(2 * A_SECOND)
    late = (await settle(other)).state
    # then
    assert early.hold is None
    assert late.hold.opened.cause is Cause.NO_CAPACITY


async def test_when_to_wake_is_told_by_the_wall_clock_of_who_waits():
    # given an end that was recorded by a clock that is ahead
    stage = Stage(recovery={"failed": {"action": "resubmit", "budget": 3, "delay": "10min"}})
    state = await stage.running(author := stage.supervisor(timedelta(hours=5)))
    stage.scheduler.end(state.newest.object, exit=Exit(code=1))
    await author.advance()
    # when
    waiting = await settle(stage.supervisor())
    # then
    assert waiting.wake_at - stage.clocks[-1].now() == timedelta(minutes=10)
