"""Advance against a scripted scheduler: the submit protocol, obligations, holds, restarts, stops."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from prefect_dispatch.errors import Ambiguous, ReadOnlyLineage, SchedulerError
from prefect_dispatch.format.documents import encode
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import HoldLifted, LiftedBy, Outcome, Resolution, StopRequested, Submitting
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.model.state import Landing, LineageState
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_answer import hangs, refuses, times_out
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle

NO_REQUEUE = SCRIPTED.model_copy(update={"requeue": False})


class Stage:
    """One lineage in memory, a scripted scheduler, a clock, and as many supervisors as a test wants."""

    def __init__(self, capabilities=SCRIPTED, **spec) -> None:
        self.clock = ManualClock()
        self.scheduler = ScriptedScheduler(self.clock.now, capabilities)
        self.store, self.index = MemoryStore(), MemoryStore()
        self.record().append(plain_opening(capabilities, root_visible=False, **spec))

    def record(self) -> Record:
        return Record(self.store, self.index.ledger("open"), "digits", self.clock)

    def supervisor(self) -> Supervisor:
        return Supervisor(self.record(), self.scheduler, None, self.clock)

    async def settle(self, supervisor: Supervisor) -> Advanced:
        """Advance until nothing moves."""
        return await settle(supervisor)

    async def running(self, supervisor: Supervisor) -> LineageState:
        """Advance until the newest submission runs."""
        state = (await self.settle(supervisor)).state
        self.scheduler.start(self.scheduler.object_of(state.newest.token))
        return (await self.settle(supervisor)).state

    async def ended(self, supervisor: Supervisor, cause: Cause | None = None, exit: Exit | None = None):
        """End what runs, and advance until nothing moves."""
        state = await supervisor.read()
        self.scheduler.end(state.newest.object, cause, exit)
        return await self.settle(supervisor)

    def submits(self) -> list[int]:
        return list(self.scheduler.submit_calls.values())


async def test_a_job_runs_to_its_end():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    # when
    await stage.running(supervisor)
    advanced = await stage.ended(supervisor, exit=Exit(code=0))
    # then
    assert advanced.state.finished.outcome is Outcome.SUCCEEDED
    assert stage.submits() == [1]


async def test_a_preemption_without_requeue_is_resubmitted_with_the_next_epoch():
    # given
    stage = Stage(NO_REQUEUE)
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when
    await stage.ended(supervisor, Cause.PREEMPTED)
    state = await stage.running(supervisor)
    # then
    assert [str(each.epoch(run.restart)) for each, run in state.executions] == ["g0n1r0", "g0n2r0"]
    assert state.spent == {Cause.PREEMPTED: 1}
    documents = [stage.scheduler.requests[each.token].document for each in state.submissions]
    assert [document.submission for document in documents] == [1, 2]


async def test_only_the_author_of_the_intent_submits_and_others_adopt():
    # given an author whose call hangs while the object lands
    stage = Stage()
    stage.scheduler.script_submit(hangs(takes_effect_after=timedelta(0)))
    author = asyncio.create_task(stage.supervisor().advance())
    while not stage.scheduler.submit_calls:
        await asyncio.sleep(0)
    # when others advance, and the author dies
    others = [stage.supervisor() for _ in range(3)]
    for other in others:
        await stage.settle(other)
    author.cancel()
    await asyncio.gather(author, return_exceptions=True)
    state = (await stage.settle(others[0])).state
    # then
    assert stage.submits() == [1]
    assert state.newest.landing is Landing.LANDED
    assert state.newest.n == 1


async def test_a_submit_that_timed_out_although_it_landed_is_adopted():
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=20)))
    supervisor = stage.supervisor()
    # when
    advanced = await supervisor.advance()
    before = (await stage.settle(supervisor)).state.newest.landing
    stage.clock.turn(timedelta(seconds=21))
    state = (await stage.settle(supervisor)).state
    # then
    assert "did not answer" in advanced.trouble
    assert before is Landing.INTENDED
    assert state.newest.landing is Landing.LANDED
    assert stage.submits() == [1]


async def test_a_submit_that_never_landed_is_abandoned_only_after_every_bound():
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    supervisor = stage.supervisor()
    await stage.settle(supervisor)
    bounds = SCRIPTED.submit_bound + SCRIPTED.landing_bound + SCRIPTED.clock_skew
    # when
    stage.clock.turn(bounds - timedelta(seconds=1))
    waiting = (await stage.settle(supervisor)).state
    stage.clock.turn(timedelta(seconds=2))
    abandoned = (await stage.settle(supervisor)).state
    stage.clock.turn(timedelta(seconds=31))
    again = (await stage.settle(supervisor)).state
    # then
    assert waiting.newest.landing is Landing.INTENDED
    assert abandoned.newest.landing is Landing.ABANDONED
    assert [each.n for each in again.submissions] == [1, 2]
    assert again.spent == {Cause.LAUNCH_FAILED: 1}


async def test_an_abandoned_object_that_turns_up_late_is_stopped_and_settled_before_the_end():
    # given a submission that lands long after it was given up
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=timedelta(minutes=10)))
    supervisor = stage.supervisor()
    await stage.settle(supervisor)
    stage.clock.turn(timedelta(minutes=5))
    await stage.settle(supervisor)
    stage.clock.turn(timedelta(minutes=1))
    state = await stage.running(supervisor)
    assert state.newest.n == 2
    # when it turns up while its successor runs
    stage.clock.turn(timedelta(minutes=10))
    await stage.settle(supervisor)
    late = stage.scheduler.object_of(state.submissions[0].token)
    advanced = await stage.ended(supervisor, exit=Exit(code=0))
    # then
    assert [stopped for stopped, _ in stage.scheduler.stop_calls] == [late]
    assert advanced.state.finished.outcome is Outcome.SUCCEEDED
    assert not advanced.state.submissions[0].unsettled
    assert advanced.state.spent.get(Cause.STOPPED) is None


async def test_what_the_scheduler_cannot_account_for_is_held_and_a_person_gives_it_up():
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    supervisor = stage.supervisor()
    await supervisor.advance()
    token = (await supervisor.read()).newest.token
    stage.scheduler.find_errors[token] = Ambiguous("accounting is off")
    # when
    held = (await stage.settle(supervisor)).state
    await supervisor.append(
        HoldLifted(hold=held.hold.opened.hold, lifted_by=LiftedBy.PERSON, resolution=Resolution.RUN_AGAIN)
    )
    stage.clock.turn(timedelta(minutes=2))
    state = (await stage.settle(supervisor)).state
    # then
    assert "accounting is off" in held.hold.opened.why
    assert held.hold.opened.token == token
    assert [each.n for each in state.submissions] == [1, 2]
    assert state.hold is None


async def test_a_refused_submission_is_tried_again_after_its_delay_then_held():
    # given
    stage = Stage()
    stage.scheduler.script_submit(*[refuses("the partition is closed")] * 4)
    supervisor = stage.supervisor()
    # when
    for _ in range(8):
        advanced = await stage.settle(supervisor)
        stage.clock.turn(timedelta(minutes=5))
    # then
    assert "the partition is closed" in advanced.state.hold.opened.why
    assert [each.landing for each in advanced.state.submissions] == [Landing.REFUSED] * 4


async def test_nothing_follows_from_an_outage():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    before = await stage.running(supervisor)
    # when
    stage.scheduler.outage = SchedulerError("Socket timed out")
    for _ in range(60):
        stage.clock.turn(timedelta(minutes=1))
        advanced = await supervisor.advance()
    stage.scheduler.outage = None
    after = await stage.ended(supervisor, exit=Exit(code=0))
    # then
    assert advanced.trouble == "Socket timed out"
    assert advanced.state.seq == before.seq
    assert after.state.finished.outcome is Outcome.SUCCEEDED


async def test_an_unknown_word_is_neither_success_nor_gone():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    stage.scheduler.unknown[state.newest.token] = "QUANTUM"
    # when
    for _ in range(10):
        stage.clock.turn(timedelta(hours=1))
        advanced = await stage.settle(supervisor)
    del stage.scheduler.unknown[state.newest.token]
    after = await stage.settle(supervisor)
    # then
    assert advanced.state.newest.newest.ended is None
    assert advanced.state.open
    assert str(after.state.newest.newest.state) == "running"


async def test_vanished_takes_two_full_answers_a_bound_apart():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    stage.scheduler.purge(state.newest.object)
    # when
    first = await stage.settle(supervisor)
    stage.clock.turn(SCRIPTED.observe_bound - timedelta(seconds=1))
    second = await stage.settle(supervisor)
    stage.clock.turn(timedelta(seconds=2))
    third = await stage.settle(supervisor)
    # then
    assert first.state.newest.newest.ended is None
    assert second.state.newest.newest.ended is None
    assert third.state.newest.newest.ended.cause is Cause.VANISHED


async def test_time_without_a_supervisor_does_not_count_towards_vanished():
    # given
    stage = Stage()
    state = await stage.running(stage.supervisor())
    stage.scheduler.purge(state.newest.object)
    await stage.settle(stage.supervisor())
    # when a new process looks a day later
    stage.clock.turn(timedelta(days=1))
    advanced = await stage.settle(stage.supervisor())
    # then
    assert advanced.state.newest.newest.ended is None


async def test_a_restart_by_the_scheduler_is_not_resubmitted_too():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    # when
    stage.scheduler.restart(state.newest.object)
    await stage.settle(supervisor)
    stage.scheduler.start(state.newest.object)
    after = (await stage.settle(supervisor)).state
    # then
    assert [str(each.epoch(run.restart)) for each, run in after.executions] == ["g0n1r0", "g0n1r1"]
    assert after.spent == {Cause.PREEMPTED: 1}
    assert stage.submits() == [1]


async def test_a_requeue_that_never_comes_is_resubmitted_after_the_bound_with_the_switch_off():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when
    waiting = await stage.ended(supervisor, Cause.PREEMPTED)
    stage.clock.turn(SCRIPTED.restart_bound + timedelta(seconds=1))
    after = (await stage.settle(supervisor)).state
    # then
    assert len(waiting.state.submissions) == 1
    assert [each.n for each in after.submissions] == [1, 2]
    assert after.submissions[0].retired


async def test_several_restarts_between_two_polls_each_count():
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    # when
    for _ in range(3):
        stage.scheduler.restart(state.newest.object, accounted=False)
        stage.scheduler.start(state.newest.object)
    after = (await stage.settle(supervisor)).state
    # then
    assert after.newest.newest.restart == 3
    assert after.spent == {Cause.PREEMPTED: 3}
    assert after.newest.executions[0].ended.detail == "unobserved"


async def test_a_stop_reaches_a_submission_that_is_still_in_flight():
    # given
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=30)))
    supervisor = stage.supervisor()
    await supervisor.advance()
    # when
    await supervisor.append(StopRequested(intent="abandon", who="someone"))
    early = (await stage.settle(supervisor)).state
    stage.clock.turn(timedelta(seconds=31))
    state = (await stage.settle(supervisor)).state
    # then
    assert early.finished is None
    assert set(stage.scheduler.stop_calls) == {(state.newest.object, None)}
    assert state.finished.outcome is Outcome.STOPPED


async def test_a_stop_after_a_suspension_is_asked_for_at_once_and_each_of_them_once():
    # given a job that takes its time to save and exit
    stage = Stage()
    stage.scheduler = ScriptedScheduler(stage.clock.now, slow_stops=True)
    supervisor = stage.supervisor()
    running = await stage.running(supervisor)
    await supervisor.append(StopRequested(intent="suspend", who="someone"))
    await stage.settle(supervisor)
    # when the same person wants it ended, one second later
    stage.clock.turn(timedelta(seconds=1))
    await supervisor.append(StopRequested(intent="abandon", who="someone"))
    for _ in range(3):
        await stage.settle(supervisor)
    # then it is not given the rest of its time
    notice = running.opened.spec.checkpoint_cancelation.notice
    assert stage.scheduler.stop_calls == [(running.newest.object, notice), (running.newest.object, None)]


async def test_a_stop_between_intent_and_call_is_obeyed():
    # given a supervisor that died right after its intent
    stage = Stage()
    record = stage.record()
    record.refresh()
    record.append(
        Submitting(
            n=1,
            token="a" * 16,
            writer="dead",
            give_up_at=stage.clock.now() + timedelta(seconds=60),
            base="latest",
            floor=0,
            restarts_allowed=False,
        )
    )
    record.append(StopRequested(intent="abandon"))
    supervisor = stage.supervisor()
    # when
    early = (await stage.settle(supervisor)).state
    stage.clock.turn(timedelta(minutes=10))
    late = (await stage.settle(supervisor)).state
    # then
    assert early.finished is None
    assert late.finished.outcome is Outcome.STOPPED
    assert stage.submits() == []


async def test_two_supervisors_side_by_side_make_one_object_of_each_submission():
    # given
    stage = Stage(NO_REQUEUE)
    first, second = stage.supervisor(), stage.supervisor()
    # when
    for cause in (Cause.PREEMPTED, Cause.NODE_LOST, None):
        while (state := (await first.read())).newest is None or state.newest.live is False:
            await asyncio.gather(first.advance(), second.advance())
        stage.scheduler.start(stage.scheduler.object_of(state.newest.token))
        await asyncio.gather(first.advance(), second.advance())
        stage.scheduler.end(state.newest.object, cause, None if cause else Exit(code=0))
        for _ in range(6):
            await asyncio.gather(first.advance(), second.advance())
    state = await first.read()
    # then
    assert state.finished.outcome is Outcome.SUCCEEDED
    assert len(state.submissions) == 3
    assert set(stage.submits()) == {1}


async def test_an_observation_from_before_a_move_is_thrown_away():
    # given two supervisors, one of which asks while the other appends
    stage = Stage(NO_REQUEUE)
    slow, fast = stage.supervisor(), stage.supervisor()
    await stage.running(slow)
    await fast.read()
    observe = stage.scheduler.observe

    async def overtaken(objects):
        answer = await observe(objects)
        stage.scheduler.observe = observe
        await stage.ended(fast, Cause.PREEMPTED)
        return answer

    stage.scheduler.end((await slow.read()).newest.object, Cause.PREEMPTED)
    stage.scheduler.observe = overtaken
    stage.scheduler.end = lambda *_: None
    # when
    await slow.advance()
    state = await slow.read()
    # then
    assert state.spent == {Cause.PREEMPTED: 1}
    assert [each.n for each in state.submissions] == [1, 2]


async def test_a_job_that_is_queued_for_too_long_is_taken_back_and_held():
    # given
    stage = Stage(max_pending="1h")
    supervisor = stage.supervisor()
    await stage.settle(supervisor)
    # when
    stage.clock.turn(timedelta(minutes=59))
    early = (await stage.settle(supervisor)).state
    stage.clock.turn(timedelta(minutes=2))
    state = (await stage.settle(supervisor)).state
    # then
    assert early.hold is None
    assert state.newest.newest.ended.cause is Cause.NO_CAPACITY
    assert state.hold.opened.cause is Cause.NO_CAPACITY


@pytest.mark.parametrize(
    ("exit", "cause"),
    [
        (Exit(code=190), Cause.DUPLICATE),
        (Exit(code=191), Cause.UNUSABLE_CHECKPOINT),
        (Exit(code=192), Cause.IDENTITY_CHANGED),
        (Exit(code=194), Cause.UNPUBLISHABLE),
    ],
)
async def test_the_helpers_own_word_holds(exit, cause):
    # given
    stage = Stage()
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when
    advanced = await stage.ended(supervisor, exit=exit)
    # then
    assert advanced.state.hold.opened.cause is cause
    assert advanced.state.finished is None


async def test_an_end_that_somebody_else_asked_for_is_a_preemption():
    # given
    stage = Stage(NO_REQUEUE)
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when the helper says that it was asked to end, which the scheduler does not know of
    advanced = await stage.ended(supervisor, exit=Exit(code=195))
    # then it runs again
    assert [each.n for each in advanced.state.submissions] == [1, 2]
    assert advanced.state.spent == {Cause.PREEMPTED: 1}


async def test_state_beats_exit_code():
    # given
    stage = Stage(NO_REQUEUE)
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when
    advanced = await stage.ended(supervisor, Cause.NODE_LOST, Exit(code=0))
    # then
    assert advanced.state.finished is None
    assert advanced.state.spent == {Cause.NODE_LOST: 1}


async def test_an_ended_object_that_is_purged_is_told_once():
    # given an execution that ended and waits for the scheduler's restart, whose object is forgotten meanwhile
    stage = Stage()
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    await stage.ended(supervisor, Cause.PREEMPTED)
    stage.scheduler.purge(state.newest.object)
    # when
    facts = []
    for _ in range(4):
        stage.clock.turn(SCRIPTED.observe_bound)
        facts.append((await supervisor.advance()).state.seq)
    # then
    assert len(set(facts)) == 1


async def test_what_cannot_be_told_of_one_submission_hides_nothing_of_another():
    # given an abandoned submission that can not be asked for any more, and its successor
    stage = Stage()
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    supervisor = stage.supervisor()
    await stage.settle(supervisor)
    stage.clock.turn(timedelta(minutes=5))
    await stage.settle(supervisor)
    stage.clock.turn(timedelta(minutes=1))
    state = await stage.running(supervisor)
    stage.scheduler.find_errors[state.submissions[0].token] = SchedulerError("slurmdbd is down")
    # when
    stage.scheduler.end(state.newest.object, exit=Exit(code=0))
    advanced = await supervisor.advance()
    after = await stage.settle(supervisor)
    # then
    assert advanced.trouble == "slurmdbd is down"
    assert after.state.finished.outcome is Outcome.SUCCEEDED


async def test_a_read_only_lineage_is_left_alone():
    # given a running object that is to be stopped, and then a fact of a newer version
    stage = Stage()
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    await supervisor.append(StopRequested(intent="abandon"))
    last = (await supervisor.entries())[-1]
    newer = {**last.document(), "seq": last.seq + 1, "kind": "teleported"}
    stage.store.ledger("record").create(f"{last.seq + 1:020d}.json", encode(newer))
    # when
    with pytest.raises(ReadOnlyLineage, match="teleported"):
        await supervisor.advance()
    # then
    assert stage.scheduler.stop_calls == []
    assert len(await supervisor.entries()) == last.seq


async def test_a_requeue_that_is_refused_for_certain_is_not_waited_for():
    # given
    stage = Stage(recovery={"failed": {"action": "requeue", "budget": 3}})
    stage.scheduler.script_requeue(refuses("requeue is disabled"))
    supervisor = stage.supervisor()
    await stage.running(supervisor)
    # when
    advanced = await stage.ended(supervisor, exit=Exit(code=1))
    # then
    assert [each.n for each in advanced.state.submissions] == [1, 2]
    assert advanced.state.submissions[0].retired


async def test_a_record_that_is_away_for_a_while_is_waited_for_and_nothing_is_done_meanwhile():
    # given
    stage = Stage(NO_REQUEUE)
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    facts = stage.store.ledger("record")
    kept = {name: facts.read(name) for name in facts.names()}
    for name in kept:
        facts.remove(name)
    # when the object ends while the record is away
    stage.scheduler.end(state.newest.object, Cause.PREEMPTED)
    away = [await supervisor.advance() for _ in range(3)]
    for name, content in kept.items():
        facts.create(name, content)
    back = await stage.settle(supervisor)
    # then
    assert all("not there any more" in advanced.trouble for advanced in away)
    assert stage.submits() == [1, 1]
    assert [each.n for each in back.state.submissions] == [1, 2]


async def test_a_delay_that_was_recorded_by_a_clock_ahead_is_waited_for_once():
    # given an end that was recorded by a supervisor whose clock is a day ahead
    stage = Stage(recovery={"failed": {"action": "resubmit", "budget": 3, "delay": "10s"}})
    supervisor = stage.supervisor()
    state = await stage.running(supervisor)
    ahead = ManualClock(stage.clock.now() + timedelta(days=1))
    other = Supervisor(Record(stage.store, stage.index.ledger("open"), "digits", ahead), stage.scheduler, None, ahead)
    stage.scheduler.end(state.newest.object, exit=Exit(code=1))
    await other.advance()
    # when
    waiting = await stage.settle(supervisor)
    stage.clock.turn(timedelta(seconds=11))
    after = await stage.settle(supervisor)
    # then
    assert len(waiting.state.submissions) == 1
    assert [each.n for each in after.state.submissions] == [1, 2]
