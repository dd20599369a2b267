"""Holds: what a shared checkpoint makes of the rules, what signal and clock may lift, and a person's word over both."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Literal

import pytest

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.facts import (
    Cessation,
    Entry,
    Finished,
    HoldDue,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Outcome,
    Reopened,
    Resolution,
    StopRequested,
    SubmitRefused,
)
from prefect_dispatch.model.holds import ANSWER_AGAIN_AFTER, EXPIRY_BOUND, is_news
from prefect_dispatch.model.next_step import ambiguous_hold
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.recovery import SHARED_HOLD_FOR, Recovery
from prefect_dispatch.model.state import Hold
from prefect_dispatch.model.steps import Append, Done, Finish, Held, Poll, Submit
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import BEGIN, Story, object_of

REQUEUES = SCRIPTED.model_copy(update={"requeue": True})
PLAIN = Capabilities(scheduler="plain", requeue=False, time_limit=False)
SKEW = REQUEUES.clock_skew
SECOND = timedelta(seconds=1)
RECOVERY: dict[str, Any] = {"preempted": {"action": "requeue", "budget": 2}, "failed": {"action": "hold"}}


def shared(**spec: Any) -> Story:
    """A job with a shared checkpoint on a scheduler that could run it again by itself."""
    return Story({"shared_checkpoint": True, "recovery": RECOVERY, **spec}, REQUEUES)


def preempted(n: int = 1, story: Story | None = None, **spec: Any) -> Story:
    """One whose execution was preempted, and that is held for it."""
    story = story or shared(**spec)
    story.submit()
    story.run(n)
    story.end(Cause.PREEMPTED, n, published=0)
    story.hold()
    return story


def answer(story: Story, word: Literal["ceased", "running", "unknown"], n: int = 1) -> None:
    assert story.state.hold is not None
    story.tell(Cessation(hold=story.state.hold.opened.hold, object=object_of(n), answer=word))


def follows(story: Story) -> Any:
    """Append the fact that is due."""
    step = story.step()
    assert isinstance(step, Append), step
    story.tell(step.fact, generation=step.generation)
    return step.fact


class TestPlan:
    def test_every_recovery_rule_becomes_a_hold_and_says_so(self) -> None:
        # given
        planned = plan(shared().spec, REQUEUES, root_visible=True)
        # then
        for row in planned.rows:
            recovers = row.declared.recovers
            assert (row.effective.action is Action.HOLD and bool(row.why)) or not recovers
            assert (row.stands_for is not None) is recovers
        assert planned.recovery(Cause.PREEMPTED).action is Action.RESUBMIT
        assert planned.recovery(Cause.PREEMPTED).budget == 2
        assert any("24h" in note and "reopening" in note for note in planned.notes)

    def test_the_scheduler_may_never_restart_it_by_itself(self) -> None:
        assert plan(Story({"recovery": RECOVERY}, REQUEUES).spec, REQUEUES, root_visible=True).scheduler_restarts
        assert not plan(shared().spec, REQUEUES, root_visible=True).scheduler_restarts
        step = shared().step()
        assert isinstance(step, Submit) and not step.restarts_allowed

    def test_a_job_that_shares_nothing_has_the_plan_that_it_had(self) -> None:
        planned = plan(Story({"recovery": RECOVERY}, REQUEUES).spec, REQUEUES, root_visible=True)
        assert all(row.stands_for is None for row in planned.rows)
        assert not planned.holds_first(Cause.PREEMPTED)


class TestSharedCheckpoint:
    @pytest.mark.parametrize("cause", [cause for cause in Cause if Recovery().rule(cause).recovers])
    def test_each_cause_that_would_run_it_again_holds_instead(self, cause: Cause) -> None:
        # given
        story = shared(recovery={})
        story.submit()
        # when
        story.end(cause)
        # then
        held = story.hold()
        assert held.stands_for is Action.RESUBMIT and held.signal_may_lift
        assert held.until == story.now + SHARED_HOLD_FOR

    def test_a_submission_that_was_refused_holds_too_and_no_signal_can_be_asked(self) -> None:
        story = shared()
        story.intend()
        story.tell(SubmitRefused(n=1, detail="no such partition"))
        held = story.hold()
        assert not held.signal_may_lift and held.object is None

    def test_a_spent_budget_is_for_a_person_alone(self) -> None:
        # given a budget of one
        story = preempted(recovery={"preempted": {"action": "requeue", "budget": 1}})
        answer(story, "ceased")
        follows(story)
        story.submit()
        # when it is preempted for the second time
        story.end(Cause.PREEMPTED, 2)
        # then
        assert not story.hold().signal_may_lift

    def test_the_sites_word_charges_want_of_progress_as_ever(self) -> None:
        # given a job that may run twice without a save
        story = preempted(recovery={**RECOVERY, "no_progress": 2})
        answer(story, "ceased")
        follows(story)
        story.submit()
        # when the second one brings none either
        story.end(Cause.PREEMPTED, 2, published=0)
        # then no signal lifts what follows
        held = story.hold()
        assert not held.signal_may_lift and "without a new save" in held.why

    def test_a_delay_of_the_rule_holds_after_the_sites_word_and_not_after_a_persons(self) -> None:
        rule = {"preempted": {"action": "requeue", "budget": 9, "delay": "5min"}}
        story = preempted(recovery=rule)
        answer(story, "ceased")
        follows(story)
        assert isinstance(story.step(), Poll)
        story.later(timedelta(minutes=5))
        assert isinstance(story.step(), Submit)
        other = preempted(recovery=rule)
        other.lift()
        assert isinstance(other.step(), Submit)

    def test_a_hold_without_an_end_is_one_that_was_asked_for_or_that_nobody_can_account_for(self) -> None:
        story = shared()
        story.submit()
        story.end(Cause.SUSPENDED)
        assert story.hold().until is None
        lost = shared(hold_for="1h")
        lost.intend()
        found = ambiguous_hold(lost.state, lost.newest, "purged").fact
        assert isinstance(found, HoldOpened) and found.until is None

    def test_a_clock_that_was_set_back_shortens_no_hold(self) -> None:
        # given an end that was written at noon
        story = shared()
        story.submit()
        story.end(Cause.PREEMPTED)
        # when somebody whose clock shows yesterday opens the hold
        story.now = BEGIN - timedelta(days=1)
        # then
        assert story.hold().until == BEGIN + SHARED_HOLD_FOR


class TestSignal:
    def test_ceased_lifts_the_hold_and_the_rule_applies(self) -> None:
        story = preempted()
        answer(story, "ceased")
        lifted = follows(story)
        assert (lifted.lifted_by, lifted.resolution) == (LiftedBy.SIGNAL, Resolution.RUN_AGAIN)
        step = story.step()
        assert isinstance(step, Submit) and step.n == 2 and not step.restarts_allowed

    @pytest.mark.parametrize("word", ["running", "unknown"])
    def test_any_other_answer_leaves_it(self, word: Literal["running", "unknown"]) -> None:
        story = preempted()
        answer(story, word)
        assert isinstance(story.step(), Held)

    def test_an_answer_about_another_object_is_none(self) -> None:
        story = preempted()
        answer(story, "ceased", n=7)
        assert isinstance(story.step(), Held)

    def test_what_is_gone_does_not_come_back(self) -> None:
        story = preempted()
        answer(story, "ceased")
        answer(story, "running")
        assert isinstance(follows(story), HoldLifted)

    def test_a_hold_that_is_no_signals_is_not_lifted_by_one(self) -> None:
        # given a hold that the spec asks for
        story = shared()
        story.submit()
        story.end(Cause.FAILED)
        story.hold()
        # when the site says that all is gone, and somebody even writes the lift
        answer(story, "ceased")
        assert isinstance(story.step(), Held)
        assert story.state.hold is not None
        hold = story.state.hold.opened.hold
        story.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.SIGNAL, resolution=Resolution.RUN_AGAIN))
        # then
        assert isinstance(story.step(), Held)

    def test_a_lift_in_the_sites_name_without_its_word_counts_for_nothing(self) -> None:
        story = preempted()
        answer(story, "running")
        assert story.state.hold is not None
        hold = story.state.hold.opened.hold
        story.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.SIGNAL, resolution=Resolution.RUN_AGAIN))
        assert isinstance(story.step(), Held)

    def test_a_persons_choice_wins_until_the_next_submission(self) -> None:
        # given a hold that the site has just lifted
        story = preempted()
        answer(story, "ceased")
        hold = follows(story).hold
        chosen = HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=Resolution.FROM_SCRATCH, who="ops")
        # when a person answers it all the same
        story.tell(chosen)
        # then it counts
        step = story.step()
        assert isinstance(step, Submit) and step.base == "scratch"
        # and after the submission it does not
        late = preempted()
        answer(late, "ceased")
        hold = follows(late).hold
        late.submit()
        late.tell(chosen.model_copy(update={"hold": hold}))
        assert late.state.lifted is None and late.state.base == "latest"

    def test_a_signal_does_not_take_a_persons_word_back(self) -> None:
        story = preempted()
        answer(story, "ceased")
        assert story.state.hold is not None
        hold = story.state.hold.opened.hold
        story.lift(Resolution.FROM_SCRATCH)
        story.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.SIGNAL, resolution=Resolution.RUN_AGAIN))
        step = story.step()
        assert isinstance(step, Submit) and step.base == "scratch"

    @pytest.mark.parametrize("order", ["before the answer", "before the lift", "after the lift"])
    def test_a_persons_stop_beats_a_signal(self, order: str) -> None:
        # given
        story = preempted()
        stop = StopRequested(intent="abandon", who="ops")
        # when both come
        if order == "before the answer":
            story.tell(stop)
        answer(story, "ceased")
        if order == "before the lift":
            story.tell(stop)
        if order == "after the lift":
            follows(story)
            story.tell(stop)
        # then nothing is submitted
        step = story.step()
        assert isinstance(step, Finish) and step.outcome is Outcome.STOPPED

    def test_an_end_that_comes_after_the_lift_has_a_hold_of_its_own(self) -> None:
        # given a signal's lift, and the next execution preempted in turn
        story = preempted()
        answer(story, "ceased")
        follows(story)
        first = preempted(2, story).state.hold
        # then the old answer says nothing of it
        assert first is not None and first.cessation is None
        assert isinstance(story.step(), Held)


class TestAnswersWorthAFact:
    def hold(self, word: str | None) -> Hold:
        opened = HoldOpened(hold="h1", why="x", object=object_of(1))
        known = Cessation(hold="h1", object=object_of(1), answer=word) if word else None  # type: ignore[arg-type]
        return Hold(opened=opened, at=BEGIN, cessation=known, answered_at=BEGIN if word else None)

    def test_the_first_and_each_other_one(self) -> None:
        running = Cessation(hold="h1", object=object_of(1), answer="running", detail="pid 7")
        assert is_news(self.hold(None), running, BEGIN)
        assert is_news(self.hold("unknown"), running, BEGIN)
        assert not is_news(self.hold("running"), running, BEGIN)

    def test_the_same_again_after_a_while_by_any_clock(self) -> None:
        running = Cessation(hold="h1", object=object_of(1), answer="running")
        assert not is_news(self.hold("running"), running, BEGIN + ANSWER_AGAIN_AFTER - SECOND)
        assert is_news(self.hold("running"), running, BEGIN + ANSWER_AGAIN_AFTER)
        assert is_news(self.hold("running"), running, BEGIN - ANSWER_AGAIN_AFTER)


class TestExpiry:
    def test_it_takes_two_looks_a_bound_apart_both_beyond_the_skew(self) -> None:
        # given
        story = preempted()
        story.later(SHARED_HOLD_FOR + SKEW - SECOND)
        assert isinstance(story.step(), Held)
        # when the first one finds it due
        story.later(SECOND)
        assert isinstance(follows(story), HoldDue)
        # then nothing follows before the second
        assert isinstance(story.step(), Held)
        story.later(EXPIRY_BOUND + SKEW - SECOND)
        assert isinstance(story.step(), Held)
        story.later(SECOND)
        lifted = follows(story)
        assert (lifted.lifted_by, lifted.resolution) == (LiftedBy.EXPIRY, Resolution.EXPIRE)
        step = story.step()
        assert isinstance(step, Finish) and step.outcome is Outcome.HOLD_EXPIRED

    def test_the_time_in_which_nobody_looked_does_not_count(self) -> None:
        # given that nobody was there for a week
        story = preempted()
        story.later(timedelta(days=7))
        # then the first who looks only says so, and a person still has the bound
        assert isinstance(follows(story), HoldDue)
        story.later(EXPIRY_BOUND / 2)
        assert isinstance(story.step(), Held)

    def test_a_first_look_by_a_clock_that_is_ahead_ends_nothing(self) -> None:
        # given a poller whose clock is two days ahead
        story = preempted()
        ahead = timedelta(days=2)
        story.later(ahead)
        follows(story)
        # when one whose clock is right looks
        story.later(-ahead + timedelta(hours=1))
        assert isinstance(story.step(), Held)
        # then the hold is not over before its time, and the wrong look is not the first of two
        story.later(SHARED_HOLD_FOR - timedelta(hours=1) + SKEW)
        assert isinstance(follows(story), HoldDue)
        story.later(EXPIRY_BOUND + SKEW)
        assert follows(story).lifted_by is LiftedBy.EXPIRY

    def test_a_second_look_by_a_clock_that_is_behind_ends_nothing(self) -> None:
        story = preempted()
        story.later(SHARED_HOLD_FOR + SKEW)
        follows(story)
        story.later(-timedelta(hours=5))
        assert isinstance(story.step(), Held)

    def test_other_holds_expire_where_the_spec_says_so_and_never_else(self) -> None:
        story = Story({"recovery": RECOVERY, "hold_for": "30s"}, PLAIN)
        story.submit()
        story.end(Cause.FAILED)
        assert story.hold().until == story.now + timedelta(seconds=30)
        story.later(timedelta(seconds=30) + SKEW)
        follows(story)
        # a short hold need not wait for a long bound
        story.later(timedelta(seconds=30) + SKEW)
        assert follows(story).lifted_by is LiftedBy.EXPIRY
        patient = Story({"recovery": RECOVERY}, PLAIN)
        patient.submit()
        patient.end(Cause.FAILED)
        assert patient.hold().until is None
        patient.later(timedelta(days=5000))
        assert isinstance(patient.step(), Held)

    def test_a_length_beyond_all_clocks_is_no_end(self) -> None:
        story = Story({"recovery": RECOVERY, "hold_for": "36500d"}, PLAIN)
        story.now = BEGIN.replace(year=8990)
        story.submit()
        story.end(Cause.FAILED)
        assert story.hold().until is None

    def test_a_persons_word_wins_over_an_expiry_until_the_end(self) -> None:
        story = preempted()
        story.later(SHARED_HOLD_FOR + SKEW)
        follows(story)
        story.later(EXPIRY_BOUND + SKEW)
        hold = follows(story).hold
        story.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=Resolution.RUN_AGAIN, who="ops"))
        assert isinstance(story.step(), Submit)

    def test_nothing_expires_that_has_no_end(self) -> None:
        story = Story({"recovery": RECOVERY}, PLAIN)
        story.submit()
        story.end(Cause.FAILED)
        hold = story.hold().hold
        story.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.EXPIRY, resolution=Resolution.EXPIRE))
        assert isinstance(story.step(), Held)


class TestReopening:
    def over(self, **spec: Any) -> Story:
        story = preempted(**spec)
        story.later(SHARED_HOLD_FOR + SKEW)
        follows(story)
        story.later(EXPIRY_BOUND + SKEW)
        follows(story)
        step = story.step()
        assert isinstance(step, Finish)
        story.tell(Finished(outcome=step.outcome, detail=step.detail))
        assert isinstance(story.step(), Done)
        return story

    def test_it_holds_first_and_loses_nothing(self) -> None:
        # given a job that ended since nobody answered
        story = self.over()
        before = (story.state.submissions, story.state.spent)
        # when a person reopens it
        story.tell(Reopened(who="ops", after=Outcome.HOLD_EXPIRED))
        # then it is held anew, with a time of its own, for a person alone
        held = story.hold()
        assert "reopened by ops after hold_expired" in held.why
        assert held.until == story.now + SHARED_HOLD_FOR and not held.signal_may_lift
        assert (story.state.submissions, story.state.spent) == before
        # and goes on at a person's word
        story.lift()
        step = story.step()
        assert isinstance(step, Submit) and step.n == 2

    def test_a_stop_of_the_life_before_does_not_stop_the_new_one(self) -> None:
        story = Story({"recovery": RECOVERY}, PLAIN)
        story.submit()
        story.tell(StopRequested(intent="abandon", who="ops"))
        story.end(Cause.STOPPED)
        story.tell(Finished(outcome=Outcome.STOPPED))
        story.tell(Reopened(who="ops"))
        story.hold()
        story.lift()
        assert isinstance(story.step(), Submit)

    def test_what_is_not_finished_cannot_be_reopened(self) -> None:
        story = preempted()
        before = story.state
        after = story.tell(Reopened(who="ops"))
        assert after.model_copy(update={"seq": before.seq, "at": before.at}) == before

    def test_a_job_that_never_got_an_object_holds_too(self) -> None:
        story = Story()
        story.tell(StopRequested(intent="abandon"), Finished(outcome=Outcome.STOPPED), Reopened())
        story.hold()
        story.lift()
        step = story.step()
        assert isinstance(step, Submit) and step.n == 1


def test_facts_of_before_fold_as_they_did() -> None:
    # given facts as they were written before a hold had an end and a reopening an outcome
    old = {"format": 1, "seq": 1, "at": "2026-03-01T12:00:00Z", "by": "w", "nonce": "n", "generation": 0}
    for body in (
        {"kind": "hold_opened", "hold": "h3", "why": "x", "until": None, "signal_may_lift": False},
        {"kind": "reopened", "who": "ops"},
        {"kind": "cessation", "hold": "h3", "object": object_of(1).model_dump(), "answer": "running", "detail": ""},
    ):
        # then they are read
        text = json.dumps({**old, **body}).encode()
        assert Entry.decode(text, "x").fact.kind == body["kind"]


def test_a_scheduler_without_requeue_holds_all_the_same() -> None:
    story = Story({"shared_checkpoint": True, "recovery": RECOVERY}, PLAIN)
    story.submit()
    story.end(Cause.PREEMPTED)
    assert story.hold().stands_for is Action.RESUBMIT
