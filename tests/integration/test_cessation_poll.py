"""One poll of all open holds: what is recorded, what is lifted, and that nothing is by anybody's death or haste."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Cessation,
    Ended,
    Fact,
    HoldDue,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Outcome,
    StopRequested,
    Submitted,
    Submitting,
)
from prefect_dispatch.model.holds import ANSWER_AGAIN_AFTER, EXPIRY_BOUND
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.model.recovery import SHARED_HOLD_FOR
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import Append, Finish, Submit
from prefect_dispatch.schedulers.cessation import CessationAnswer
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.cessation import CLOCK_SKEW, Polled, ask_about_holds
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.scripted_signal import ScriptedSignal

OBJECT = ObjectRef(scheduler="scripted", id="7", token="a" * 16)
CEASED = CessationAnswer("ceased", "nothing lives")
RUNNING = CessationAnswer("running", "pid 7")
CAPABILITIES = SCRIPTED.model_copy(update={"requeue": False})


class Site:
    """Held lineages, a clock, and pollers that each see the records anew."""

    def __init__(self, lineages: int = 1) -> None:
        self.clock = ManualClock()
        self.stores = {f"l{number}": (MemoryStore(), MemoryStore()) for number in range(lineages)}

    def record(self, lineage: str = "l0") -> Record:
        store, index = self.stores[lineage]
        return Record(store, index.ledger("open"), lineage, self.clock)

    def hold(self, lineage: str = "l0", *, nodes: tuple[str, ...] = ("n1",), shared: bool = True) -> HoldOpened:
        """Have a lineage held after a preemption: for a shared checkpoint, or since its spec says so."""
        recovery = {"preempted": {"action": "requeue" if shared else "hold", **({"budget": 9} if shared else {})}}
        record = self.record(lineage)
        opening = plain_opening(CAPABILITIES, lineage=lineage, shared_checkpoint=shared, recovery=recovery)
        now = self.clock.now()
        for fact in (
            opening,
            Submitting(n=1, token="a" * 16, writer="w", give_up_at=now, base="latest", floor=0, restarts_allowed=False),
            Submitted(n=1, object=OBJECT),
            Ended(n=1, restart=0, cause=Cause.PREEMPTED, nodes=nodes),
        ):
            record.append(fact)
        state = self.follow(lineage)
        assert state.hold is not None
        return state.hold.opened

    def step(self, lineage: str = "l0"):
        return next_step(self.record(lineage).refresh(), self.clock.now(), CAPABILITIES)

    def follow(self, lineage: str = "l0") -> LineageState:
        """Be a supervisor for one append."""
        record = self.record(lineage)
        step = next_step(record.refresh(), self.clock.now(), CAPABILITIES)
        assert isinstance(step, Append), step
        return record.append(step.fact)

    async def poll(self, signal: ScriptedSignal | None, **options) -> list[Polled]:
        """One poll by a process of its own."""
        records = [self.record(lineage) for lineage in self.stores]
        return await ask_about_holds(records, lambda state: signal, self.clock, **options)

    def facts(self, kind: type[Fact], lineage: str = "l0") -> list[Fact]:
        return [entry.fact for entry in self.record(lineage).entries() if isinstance(entry.fact, kind)]


async def test_ceased_is_recorded_lifts_the_hold_and_the_rule_applies():
    # given
    site = Site()
    held = site.hold()
    signal = ScriptedSignal(CEASED)
    # when
    (polled,) = await site.poll(signal)
    # then
    assert polled == Polled("l0", held.hold, CEASED, LiftedBy.SIGNAL)
    assert [(each.object, each.restart, each.nodes, each.attempt) for each in signal.asked] == [
        (OBJECT, 0, ("n1",), f"{'a' * 16}-0")
    ]
    assert site.facts(Cessation) == [Cessation(hold=held.hold, object=OBJECT, answer="ceased", detail="nothing lives")]
    step = site.step()
    assert isinstance(step, Submit) and step.n == 2
    # and there is nothing left to be asked
    assert await site.poll(signal) == [Polled("l0")]
    assert len(signal.asked) == 1


@pytest.mark.parametrize("word", ["running", "unknown"])
async def test_any_other_answer_is_recorded_and_leaves_the_hold(word: Literal["running", "unknown"]):
    site = Site()
    site.hold()
    (polled,) = await site.poll(ScriptedSignal(CessationAnswer(word)))
    assert polled.lifted_by is None
    assert [fact.answer for fact in site.facts(Cessation)] == [word]
    assert site.record().refresh().hold is not None


async def test_only_a_hold_that_a_signal_may_lift_is_lifted_by_one():
    # given a hold that the spec asks for
    site = Site()
    site.hold(shared=False)
    signal = ScriptedSignal(CEASED)
    # when
    await site.poll(signal)
    # then a person sees what the site says, and decides
    state = site.record().refresh()
    assert state.hold is not None and state.hold.ceased
    # and it is not asked about any more: what is gone stays gone
    await site.poll(signal)
    assert len(signal.asked) == 1


async def test_no_known_node_is_unknown_without_asking():
    site = Site()
    site.hold(nodes=())
    signal = ScriptedSignal(CEASED)
    (polled,) = await site.poll(signal)
    assert signal.asked == [] and polled.answer is not None and polled.answer.answer == "unknown"
    assert site.record().refresh().hold is not None


async def test_an_error_and_a_silence_are_unknown():
    site = Site()
    site.hold()
    for signal, why in (
        (ScriptedSignal(SchedulerError("the site is down")), "the site is down"),
        (ScriptedSignal(RuntimeError("a defect\nof the site's\x1b[31m code")), "a defect"),
        (ScriptedSignal(CEASED, takes_seconds=60), "no answer within 0.05s"),
        (ScriptedSignal(None), "NoneType"),
        (ScriptedSignal(CessationAnswer("gone", "all of it")), "answered 'gone': all of it"),
        (ScriptedSignal(CessationAnswer("ceased", None)), "NoneType"),
    ):
        (polled,) = await site.poll(signal, within=timedelta(seconds=0.05))
        assert polled.answer is not None and polled.answer.answer == "unknown" and why in polled.answer.detail
    assert site.record().refresh().hold is not None
    assert all(fact.detail.isprintable() for fact in site.facts(Cessation))


async def test_where_there_is_no_signal_nobody_is_asked():
    site = Site()
    held = site.hold()
    assert await site.poll(None) == [Polled("l0", held.hold)]


async def test_the_same_answer_is_a_fact_again_after_an_hour_only():
    # given a hold that is asked about every minute
    site = Site()
    site.hold()
    signal = ScriptedSignal(RUNNING)
    hours = 3
    # when
    for minute in range(hours * 60):
        signal.answer = CessationAnswer("running", f"looked at minute {minute}")
        await site.poll(signal)
        site.clock.turn(timedelta(minutes=1))
    # then the record stays small, and an answer that differs is there at once
    assert len(signal.asked) == hours * 60
    assert len(site.facts(Cessation)) == hours
    signal.answer = CessationAnswer("unknown")
    await site.poll(signal)
    assert len(site.facts(Cessation)) == hours + 1
    assert timedelta(hours=1) == ANSWER_AGAIN_AFTER


async def test_all_are_asked_side_by_side_and_not_too_many_at_once():
    # given
    site = Site(100)
    for lineage in site.stores:
        site.hold(lineage)
    signal = ScriptedSignal(CEASED, takes_seconds=0.05)
    # when
    polled = await site.poll(signal, at_a_time=40)
    # then
    assert [each.lineage for each in polled] == list(site.stores)
    assert all(each.lifted_by is LiftedBy.SIGNAL for each in polled)
    assert 20 < signal.most_at_once <= 40


async def test_a_lineage_that_cannot_be_read_takes_no_other_along():
    site = Site(2)
    site.hold("l0")
    site.hold("l1")
    site.stores["l0"][0].ledger("record").create(f"{7:020d}.json", b"{")
    broken, good = await site.poll(ScriptedSignal(CEASED))
    assert "l0" in broken.lineage and broken.trouble
    assert good.lifted_by is LiftedBy.SIGNAL


@pytest.mark.parametrize("act", [choices.run_again, choices.from_scratch, choices.stop])
async def test_a_person_who_answers_while_the_site_is_asked_wins(act):
    # given a person who is faster than the site
    site = Site()
    held = site.hold()

    async def answer(_) -> None:
        act(site.record(), held.hold, who="ada")

    # when
    (polled,) = await site.poll(ScriptedSignal(CEASED, meanwhile=answer))
    # then the site's answer comes too late to be a fact
    assert polled.lifted_by is None
    (lift,) = site.facts(HoldLifted)
    assert lift.lifted_by is LiftedBy.PERSON
    assert site.facts(Cessation) == []


async def test_a_stop_that_comes_while_the_site_is_asked_beats_its_answer():
    site = Site()
    site.hold()

    async def stop(_) -> None:
        record = site.record()
        record.refresh()
        record.append(StopRequested(intent="abandon", who="ada"))

    await site.poll(ScriptedSignal(CEASED, meanwhile=stop))
    await site.poll(ScriptedSignal(CEASED))
    assert site.facts(HoldLifted) == []
    step = site.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.STOPPED


async def test_who_died_between_answer_and_lift_is_made_up_for_without_asking():
    # given the answer alone
    site = Site()
    held = site.hold()
    record = site.record()
    record.refresh()
    record.append(Cessation(hold=held.hold, object=OBJECT, answer="ceased"))
    signal = ScriptedSignal(RUNNING)
    # when
    (polled,) = await site.poll(signal)
    # then
    assert polled.lifted_by is LiftedBy.SIGNAL and signal.asked == []


async def test_any_number_of_pollers_lift_a_hold_once():
    site = Site(5)
    for lineage in site.stores:
        site.hold(lineage)
    signal = ScriptedSignal(CEASED, takes_seconds=0.02)
    await asyncio.gather(*(site.poll(signal) for _ in range(6)))
    for lineage in site.stores:
        assert len(site.facts(HoldLifted, lineage)) == 1
        assert len(site.facts(Cessation, lineage)) == 1


async def test_pollers_that_are_a_new_process_each_time_let_a_hold_expire():
    # given a hold of a day
    site = Site()
    site.hold()
    signal = ScriptedSignal(RUNNING)
    minutes = 0
    # when a new poller looks each minute
    while not site.facts(HoldLifted):
        await site.poll(signal)
        site.clock.turn(timedelta(minutes=1))
        minutes += 1
        assert minutes < 26 * 60
    # then it expired after its time, two looks a bound apart, and can be told from a stop
    least = (SHARED_HOLD_FOR + EXPIRY_BOUND + 2 * CLOCK_SKEW) / timedelta(minutes=1)
    assert least <= minutes <= least + 3
    assert len(site.facts(HoldDue)) == 1
    step = site.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.HOLD_EXPIRED


async def test_a_poller_whose_clock_is_ahead_and_gone_again_ends_nothing():
    # given one poll by a host whose clock is a week ahead
    site = Site()
    site.hold()
    site.clock.turn(timedelta(days=7))
    await site.poll(None)
    site.clock.turn(-timedelta(days=7))
    # when the others look for a day
    for _ in range(24 * 12):
        await site.poll(None)
        site.clock.turn(timedelta(minutes=5))
    # then it is still open, and ends when its own time is over
    assert site.record().refresh().hold is not None
    for _ in range(4):
        await site.poll(None)
        site.clock.turn(EXPIRY_BOUND + CLOCK_SKEW)
    assert site.facts(HoldLifted)
