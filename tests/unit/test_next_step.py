"""What follows from a state: ends, budgets, delays, a person's word, stops, and the resume point."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    Ended,
    Finished,
    HoldOpened,
    Observed,
    Outcome,
    Resolution,
    RestartsForbidden,
    StopRequested,
    SubmitRefused,
    Submitted,
)
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.recovery import FIXED
from prefect_dispatch.model.steps import (
    Append,
    Done,
    Finish,
    Held,
    NotOpened,
    Poll,
    Requeue,
    Submit,
)
from prefect_dispatch.model.unaccounted import ambiguous_hold
from prefect_dispatch.testing.story import Story, object_of

PLAIN = Capabilities(scheduler="plain", requeue=False, time_limit=False)
SAVE = Publication(Epoch(0, 1, 0), 40, "exec/a/40").name


def held(cause: str = "failed", **spec: Any) -> Story:
    """A job that holds after its first execution ended."""
    story = Story({"recovery": {cause: {"action": "hold"}}, **spec}, PLAIN)
    story.submit()
    story.end(Cause(cause))
    story.hold()
    return story


def test_an_empty_record_asks_for_nothing() -> None:
    assert isinstance(Story(opened=False).step(), NotOpened)


def test_a_job_is_submitted_watched_and_finished() -> None:
    story = Story()
    assert story.submit() == Submit(n=1, base="latest", floor=0, restarts_allowed=True)
    step = story.step()
    assert isinstance(step, Poll) and step.observe == (story.newest,) and step.stop == ()
    story.run()
    story.end(Cause.COMPLETED, code=0)
    assert story.step() == Finish(outcome=Outcome.SUCCEEDED, detail="the program exited 0")
    story.tell(Finished(outcome=Outcome.SUCCEEDED))
    assert isinstance(story.step(), Done)


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [(Cause.STOPPED, Outcome.STOPPED), (Cause.DEADLINE, Outcome.DEADLINE), (Cause.FAILED, Outcome.FAILED)],
)
def test_ends_that_no_rule_recovers_finish_as_what_they_are(cause: Cause, outcome: Outcome) -> None:
    story = Story()
    story.submit()
    story.end(cause)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is outcome


@pytest.mark.parametrize(
    ("cause", "detail", "said"),
    [
        (Cause.FAILED, "exit 2", "exit 2"),
        (Cause.FAILED, "", "no exit is known"),
        (Cause.PREEMPTED, "reclaimed", "preempted: reclaimed"),
    ],
)
def test_a_failed_job_does_not_say_twice_that_it_failed(cause: Cause, detail: str, said: str) -> None:
    story = Story({"recovery": {cause.value: {"action": "fail"}}}, PLAIN)
    story.submit()

    story.tell(Ended(n=1, restart=0, cause=cause, detail=detail))

    assert story.step() == Finish(outcome=Outcome.FAILED, detail=said)


def test_an_intent_is_looked_for_and_never_submitted_again() -> None:
    story = Story()
    story.intend()
    story.later(timedelta(days=1))
    step = story.step()
    assert isinstance(step, Poll) and step.find == (story.newest,) and step.observe == ()


def test_a_final_exit_code_is_never_run_again() -> None:
    recovery = {"failed": {"action": "resubmit", "budget": 5}, "final_exit_codes": [3]}
    for code, ends in ((3, True), (4, False)):
        story = Story({"recovery": recovery}, PLAIN)
        story.submit()
        story.end(Cause.FAILED, code=code)
        step = story.step()
        assert isinstance(step, Finish if ends else Submit), (code, step)


def test_one_queued_for_too_long_is_stopped() -> None:
    story = Story({"max_pending": "1h"})
    story.submit()
    story.tell(Observed(n=1, restart=0, state=ObjectState.QUEUED))
    story.later(timedelta(minutes=59))
    before = story.step()
    story.later(timedelta(minutes=1))
    after = story.step()
    assert isinstance(before, Poll) and before.stop == ()
    assert isinstance(after, Poll) and after.stop == (story.newest,)
    story.run()
    running = story.step()
    assert isinstance(running, Poll) and running.stop == ()


causes = some.sampled_from([cause for cause in Cause if cause not in FIXED])
budgets = some.dictionaries(
    causes, some.fixed_dictionaries({"action": some.just("resubmit"), "budget": some.integers(1, 3)}), min_size=1
)


@given(budgets, some.lists(causes, min_size=1, max_size=14))
def test_each_rule_is_applied_as_often_as_its_budget_whatever_else_ends_in_between(
    rules: dict[Cause, dict[str, Any]], ends: list[Cause]
) -> None:
    # given causes that all recover, some by rules of the spec
    every = {cause: {"action": "resubmit", "budget": 2} for cause in Cause if cause not in FIXED}
    story = Story({"recovery": {**every, **rules}}, PLAIN)
    applied: Counter[Cause] = Counter()
    for cause in ends:
        # when one execution after another ends
        n = story.submit().n
        story.end(cause, n=n)
        budget = story.plan.rule(cause).budget
        if applied[cause] == budget:
            # then the end after the last budgeted one holds, and says so
            opened = story.hold()
            assert opened.why == f"the budget of {budget} for {cause} is spent"
            assert (opened.cause, opened.stands_for, opened.n) == (cause, Action.RESUBMIT, n)
            return
        applied[cause] += 1
        assert isinstance(story.step(), Submit)


@given(some.lists(some.booleans(), max_size=10), some.integers(1, 3))
def test_a_hold_comes_after_so_many_executions_in_a_row_without_a_save(saved: list[bool], limit: int) -> None:
    story = Story({"recovery": {"no_progress": limit}}, PLAIN)
    count = row = 0
    for each in saved:
        n = story.submit().n
        count, row = (count + 1, 0) if each else (count, row + 1)
        story.end(Cause.PREEMPTED, n=n, published=count)
        if row == limit:
            assert story.hold().why.startswith(f"{limit} executions in a row ended without a new save")
            return
        assert isinstance(story.step(), Submit)


def test_a_lift_gives_as_many_executions_again_to_make_progress() -> None:
    story = Story({"recovery": {"no_progress": 2}}, PLAIN)
    for n in (1, 2):
        story.submit()
        story.end(Cause.PREEMPTED, n=n, published=0)
    story.hold()
    story.lift()
    for n in (3, 4):
        story.submit()
        story.end(Cause.PREEMPTED, n=n, published=0)
    story.hold()


def test_refused_submissions_spend_the_budget_of_launches() -> None:
    story = Story({"recovery": {"launch_failed": {"action": "resubmit", "budget": 1}}}, PLAIN)
    story.intend()
    story.tell(SubmitRefused(n=1, detail="no such partition"))
    assert story.intend().n == 2
    story.tell(SubmitRefused(n=2, detail="no such partition"))
    assert story.hold().why == "the budget of 1 for launch_failed is spent: no such partition"


def test_delays_grow_to_their_limit_and_are_the_only_ones() -> None:
    rule = {"action": "resubmit", "budget": 9, "delay": "10s", "backoff": 3, "max": "1min"}
    story = Story({"recovery": {"failed": rule}}, PLAIN)
    for n, seconds in enumerate((10, 30, 60, 60), 1):
        story.submit()
        story.end(Cause.FAILED, n=n)
        due = story.now + timedelta(seconds=seconds)
        step = story.step()
        assert isinstance(step, Poll) and step.wake_at == due == story.state.not_before
        story.later(timedelta(seconds=seconds) - timedelta(microseconds=1))
        assert isinstance(story.step(), Poll)
        story.later(timedelta(microseconds=1))
        assert isinstance(story.step(), Submit)
    # and an end without a delay waits for nothing
    story.submit()
    assert story.state.not_before is None
    story.end(Cause.PREEMPTED, n=5)
    assert isinstance(story.step(), Submit)


@pytest.mark.parametrize("switch_is_on", [True, False])
def test_a_requeue_that_is_ours_to_make_waits_for_its_delay_also_when_it_has_become_a_resubmission(
    switch_is_on: bool,
) -> None:
    story = Story({"recovery": {"timed_out": {"action": "requeue", "budget": 5, "delay": "1min"}}})
    story.submit()
    if not switch_is_on:
        story.tell(RestartsForbidden(n=1))
    story.end(Cause.TIMED_OUT)
    assert isinstance(story.step(), Poll)
    story.later(timedelta(minutes=1))
    assert isinstance(story.step(), Requeue if switch_is_on else Submit)


def test_run_again_applies_the_rule_that_the_hold_stood_for_once() -> None:
    story = Story({"recovery": {"failed": {"action": "resubmit", "budget": 1}}}, PLAIN)
    for n in (1, 2):
        story.submit()
        story.end(Cause.FAILED, n=n)
    story.hold()
    story.lift()
    assert story.submit() == Submit(n=3, base="latest", floor=0, restarts_allowed=False)
    story.end(Cause.FAILED, n=3)
    story.hold()


@pytest.mark.parametrize(
    ("resolution", "base", "becomes"),
    [
        (Resolution.FROM_SCRATCH, None, "scratch"),
        (Resolution.CONTINUE_FROM, SAVE, SAVE),
    ],
)
def test_a_chosen_resume_point_begins_with_the_next_submission_and_survives_later_ones(
    resolution: Resolution, base: str | None, becomes: str
) -> None:
    story = held()
    story.lift(resolution, base)
    # when it is submitted, preempted before its first save, and submitted again
    floor = Epoch(0, 2, 0).number
    step = story.submit()
    assert (step.base, step.floor) == (becomes, floor)
    story.end(Cause.PREEMPTED, n=2)
    step = story.submit()
    # then the choice holds, and so the old saves stay out
    assert (step.base, step.floor) == (becomes, floor)
    old, late = Publication(Epoch(0, 1, 0), 9000, "old"), Publication(Epoch(0, 1, 5), 9001, "late")
    chosen = ResumeChoice.decode(step.base, step.floor, "x")
    assert list(chosen.candidates([late, old])) == ([] if becomes == "scratch" else [chosen.base])


def test_a_chosen_resume_point_never_comes_by_requeue() -> None:
    story = Story({"recovery": {"preempted": {"action": "requeue", "budget": 9}}})
    story.submit()
    story.end(Cause.PREEMPTED)
    story.tell(HoldOpened(hold="h9", why="a person looks"))
    story.lift(Resolution.FROM_SCRATCH)
    story.retire()
    assert story.submit().floor == Epoch(0, 2, 0).number


def test_a_run_that_turns_out_to_live_is_ended_when_a_person_chose_another_start() -> None:
    story = Story(capabilities=PLAIN)
    story.intend()
    ambiguous = ambiguous_hold(story.state, story.newest, "no accounting")
    story.tell(ambiguous.fact)
    story.tell(Submitted(n=1, object=object_of(1)))
    story.lift(Resolution.FROM_SCRATCH)
    step = story.step()
    assert isinstance(step, Poll) and step.stop == (story.newest,)
    story.end(Cause.STOPPED)
    assert story.submit().base == "scratch"


def test_a_run_that_turns_out_to_live_is_what_run_again_asked_for() -> None:
    # given a hold for a submission that nobody could account for, which then turned up
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(ambiguous_hold(story.state, story.newest, "no accounting").fact)
    story.tell(Submitted(n=1, object=object_of(1)))
    story.lift()
    step = story.step()
    assert isinstance(step, Poll) and step.stop == ()
    # when it completes
    story.run()
    story.end(Cause.COMPLETED, code=0)
    # then it is done, and not run once more
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.SUCCEEDED


def test_a_superseding_generation_goes_on_with_the_choice_that_it_was_opened_with() -> None:
    story = held()
    story.lift(Resolution.FROM_SCRATCH)
    story.submit()
    story.end(Cause.PREEMPTED, n=2)
    # when a generation is opened with a copy
    story.tell(story.opening(story.state.base, story.state.floor), generation=1)
    step = story.submit()
    assert (step.n, step.base, step.floor) == (1, "scratch", Epoch(0, 2, 0).number)
    # then its own saves outrank any later one of the old generation
    own, late = Publication(Epoch(1, 1, 0), 1, "own"), Publication(Epoch(0, 9, 9), 9000, "late")
    candidates = ResumeChoice.decode(step.base, step.floor, "x").candidates([own, late])
    assert next(candidates) == own


def test_lifting_the_hold_over_a_lost_submission_takes_it_for_abandoned() -> None:
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(ambiguous_hold(story.state, story.newest, "no accounting").fact)
    # while it is held it is still looked for
    step = story.step()
    assert isinstance(step, Held) and step.settle is not None and step.settle.find == (story.newest,)
    story.lift()
    assert story.step() == Append(fact=Abandoned(n=1), generation=0)
    story.tell(Abandoned(n=1))
    assert story.submit().n == 2
    # and it stays an obligation: looked for, and stopped should it turn up
    step = story.step()
    assert isinstance(step, Poll) and [each.n for each in step.find] == [1]
    story.tell(Submitted(n=1, object=object_of(1)))
    step = story.step()
    assert isinstance(step, Poll) and [each.n for each in step.stop] == [1]
    assert {each.n for each in step.observe} == {1, 2}


def test_a_held_job_has_nothing_to_settle_when_all_is_settled() -> None:
    step = held().step()
    assert isinstance(step, Held) and step.settle is None


def test_a_stop_ends_what_lives_then_finishes() -> None:
    story = Story()
    story.submit()
    story.tell(StopRequested(intent="abandon", who="ops"))
    step = story.step()
    assert isinstance(step, Poll) and step.stop == step.observe == (story.newest,)
    story.end(Cause.STOPPED)
    story.retire()
    assert story.step() == Finish(outcome=Outcome.STOPPED, detail="stopped on request of ops")


def test_a_stop_waits_for_a_submission_that_is_still_in_flight_and_reaches_its_object() -> None:
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(StopRequested(intent="abandon"))
    step = story.step()
    assert isinstance(step, Poll) and step.find == (story.newest,) and step.stop == ()
    story.tell(Submitted(n=1, object=object_of(1)))
    step = story.step()
    assert isinstance(step, Poll) and step.stop == (story.newest,)


def test_a_stop_before_the_first_submission_submits_nothing() -> None:
    story = Story()
    story.tell(StopRequested(intent="abandon"))
    assert isinstance(story.step(), Finish)


def test_a_job_that_completes_before_its_stop_arrives_has_succeeded() -> None:
    story = Story(capabilities=PLAIN)
    story.submit()
    story.tell(StopRequested(intent="abandon"))
    story.end(Cause.COMPLETED, code=0)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("way", ["completed", "stopped"])
def test_nothing_finishes_while_an_older_submission_is_unsettled(landed: bool, way: str) -> None:
    # given generation 0's submission alive or in flight, and generation 1 at its end
    story = Story(capabilities=PLAIN)
    story.intend()
    if landed:
        story.tell(Submitted(n=1, object=object_of(1)))
    story.tell(story.opening(), generation=1)
    if way == "completed":
        story.submit()
        story.end(Cause.COMPLETED, code=0)
    else:
        story.tell(StopRequested(intent="abandon"))
    # then the old one is settled first: stopped or looked for
    step = story.step()
    assert isinstance(step, Poll)
    assert [each.generation for each in (step.stop if landed else step.find)] == [0]
    # when it is
    settled = Ended(n=1, restart=0, cause=Cause.STOPPED) if landed else Abandoned(n=1)
    story.tell(settled, generation=0)
    assert isinstance(story.step(), Finish)


def test_an_abandoned_submission_does_not_block_the_end_unless_it_turns_up() -> None:
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(Abandoned(n=1))
    story.later(timedelta(hours=1))
    story.submit()
    story.end(Cause.COMPLETED, n=2, code=0)
    assert isinstance(story.step(), Finish)
    story.tell(Submitted(n=1, object=object_of(1)))
    step = story.step()
    assert isinstance(step, Poll) and [each.n for each in step.stop] == [1]


def test_a_suspension_asks_then_holds() -> None:
    story = Story(capabilities=PLAIN)
    story.submit()
    story.tell(StopRequested(intent="suspend", who="ops"))
    step = story.step()
    assert isinstance(step, Poll) and step.stop == (story.newest,)
    story.end(Cause.SUSPENDED, code=195)
    assert story.hold().why == "suspended on request of ops"
    story.lift()
    assert isinstance(story.step(), Submit)


def test_a_stop_of_a_held_job_needs_no_lift() -> None:
    story = held()
    story.tell(StopRequested(intent="abandon", who="ops"))
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.STOPPED


def test_a_stop_does_not_decide_about_a_submission_that_only_a_person_can_account_for() -> None:
    # given a stop, and a submission in flight that the scheduler cannot account for
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(StopRequested(intent="abandon", who="ops"))
    story.tell(ambiguous_hold(story.state, story.newest, "no accounting").fact)
    assert isinstance(story.step(), Held)
    # when a person says to stop
    story.lift(Resolution.STOP)
    # then it is looked for as long as it may be on its way, since a stop reaches that one too
    step = story.step()
    assert isinstance(step, Poll) and step.find == (story.newest,)
    # and that is how it ends
    story.tell(Abandoned(n=1))
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.STOPPED


def test_a_lift_that_says_stop_outlives_another_hold() -> None:
    story = held()
    story.lift(Resolution.STOP)
    story.tell(HoldOpened(hold="h9", why="an older submission cannot be accounted for"))
    assert story.state.stop is not None and story.state.stop.who == "ops"
    assert isinstance(story.step(), Finish)


def test_a_later_word_of_a_person_wins_over_an_earlier_stop() -> None:
    story = Story(capabilities=PLAIN)
    story.intend()
    story.tell(StopRequested(intent="abandon"))
    story.tell(ambiguous_hold(story.state, story.newest, "no accounting").fact)
    story.lift(Resolution.RUN_AGAIN)
    story.tell(Abandoned(n=1))
    assert isinstance(story.step(), Submit)


def test_the_last_submission_that_epochs_can_count_ends_in_a_hold() -> None:
    story = Story({"recovery": {"failed": {"action": "resubmit", "budget": 9}}}, PLAIN)
    story.submit()
    last = story.entries[1].fact.model_copy(update={"n": 999_999, "token": "z" * 16})
    story.tell(last, Submitted(n=999_999, object=object_of(7)))
    story.end(Cause.FAILED, n=999_999)
    story.end(Cause.FAILED, n=1)
    assert story.hold().why == "all 999999 submissions of this generation are used up"
