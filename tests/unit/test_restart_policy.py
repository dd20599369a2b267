"""One restart policy for an object, and budgets that hold whatever a scheduler and chance do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from prefect_dispatch.model.causes import SCHEDULER_RESTARTS, Cause
from prefect_dispatch.model.facts import (
    Ended,
    Finished,
    HoldOpened,
    Observed,
    Outcome,
    Requeueing,
    Resolution,
    RestartsForbidden,
    Retired,
    Retiring,
    SubmitRefused,
    Submitted,
)
from prefect_dispatch.model.observation import EndedRestart, ObjectState, Observation
from prefect_dispatch.model.observing import news
from prefect_dispatch.model.recovery import FIXED
from prefect_dispatch.model.state import SubmissionState
from prefect_dispatch.model.steps import (
    Append,
    Done,
    Finish,
    ForbidRestarts,
    Held,
    NotOpened,
    Poll,
    Requeue,
    Retire,
    Step,
    Submit,
)
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import Story, object_of

causes = some.sampled_from([cause for cause in Cause if cause not in FIXED])


def test_the_last_restart_that_epochs_can_count_is_followed_by_another_object() -> None:
    story = Story({"recovery": {"timed_out": {"action": "requeue", "budget": 9}}})
    story.submit()
    story.end(Cause.TIMED_OUT, restart=999_999)
    assert isinstance(story.step(), Retire)


def test_the_scheduler_is_given_its_time_to_restart_then_the_object_is_retired_and_replaced() -> None:
    story = Story()
    story.submit()
    story.end(Cause.PREEMPTED)
    due = story.now + SCRIPTED.restart_bound
    step = story.step()
    assert isinstance(step, Poll) and step.observe == (story.newest,) and step.wake_at == due
    story.later(SCRIPTED.restart_bound)
    story.retire()
    assert isinstance(story.step(), Submit)


def test_the_switch_goes_off_before_the_last_budgeted_restart() -> None:
    story = Story({"recovery": {"preempted": {"action": "requeue", "budget": 3}}})
    assert story.submit().restarts_allowed
    story.end(Cause.PREEMPTED)
    story.run(restart=1)
    assert isinstance(story.step(), Poll)
    story.end(Cause.PREEMPTED, restart=1)
    story.run(restart=2)
    # when one use of the budget is left
    assert story.step() == ForbidRestarts(submission=story.newest)
    story.tell(RestartsForbidden(n=1))
    # then the last one is ours: by a resubmission, which may not restart by itself either
    story.end(Cause.PREEMPTED, restart=2)
    assert not story.submit().restarts_allowed
    story.end(Cause.PREEMPTED, n=2)
    story.hold()


def test_a_budget_of_one_never_turns_the_switch_on() -> None:
    assert not Story({"recovery": {"node_lost": {"action": "requeue", "budget": 1}}}).submit().restarts_allowed


def test_the_switch_goes_off_before_a_restart_that_want_of_progress_would_forbid() -> None:
    story = Story({"recovery": {"no_progress": 2}})
    assert story.submit().restarts_allowed
    story.end(Cause.PREEMPTED, published=0)
    story.run(restart=1)
    assert isinstance(story.step(), ForbidRestarts)
    story.tell(RestartsForbidden(n=1))
    story.end(Cause.PREEMPTED, restart=1, published=0)
    story.hold()


def test_no_hold_is_opened_while_the_scheduler_could_still_run_the_object() -> None:
    story = Story()
    story.submit()
    story.end(Cause.OUT_OF_MEMORY)
    story.retire()
    story.hold()


def test_an_object_is_retired_before_the_delay_of_the_one_that_takes_its_place() -> None:
    story = Story()
    story.submit()
    story.end(Cause.LAUNCH_FAILED)
    story.retire()
    step = story.step()
    assert isinstance(step, Poll) and step.wake_at == story.now + timedelta(seconds=30)


def test_a_requeue_that_was_asked_for_is_waited_for_and_not_asked_again() -> None:
    # given an end whose budget is spent, and a person who says to go on
    story = Story({"recovery": {"timed_out": {"action": "requeue", "budget": 1}}})
    story.submit()
    story.end(Cause.TIMED_OUT)
    assert story.step() == Requeue(submission=story.newest, restart=1)
    story.tell(Requeueing(n=1, restart=1))
    # when the scheduler takes its time
    story.later(SCRIPTED.restart_bound - timedelta(seconds=1))
    step = story.step()
    assert isinstance(step, Poll) and step.observe == (story.newest,)
    # then it is replaced only after its bound
    story.later(timedelta(seconds=1))
    story.retire()
    assert isinstance(story.step(), Submit)


def test_a_requeue_after_a_lift_is_counted_from_the_asking_and_not_held_again() -> None:
    # given three fruitless executions at most, and a scheduler that was asked to restart
    story = Story({"recovery": {"preempted": {"action": "requeue", "budget": 9}, "no_progress": 5}})
    story.submit()
    story.end(Cause.PREEMPTED)
    story.tell(HoldOpened(hold="h9", why="a person looks"))
    story.later(timedelta(days=1))
    story.lift()
    assert isinstance(story.step(), Requeue)
    story.tell(Requeueing(n=1, restart=1))
    assert isinstance(story.step(), Poll)
    story.run(restart=1)
    assert isinstance(story.step(), Poll)


def test_what_was_restarted_while_its_object_was_retired_does_not_count_as_stopped_by_a_person() -> None:
    # given an object that is being retired, since it did not restart in time
    story = Story()
    story.submit()
    story.end(Cause.PREEMPTED)
    story.later(SCRIPTED.restart_bound)
    assert isinstance(story.step(), Retire)
    story.tell(Retiring(n=1, restart=0))
    # when it restarts all the same
    story.run(restart=1)
    step = story.step()
    # then it is stopped, and its end is our own doing
    assert isinstance(step, ForbidRestarts | Poll)
    story.tell(RestartsForbidden(n=1))
    step = story.step()
    assert isinstance(step, Poll) and step.stop == (story.newest,)
    story.end(Cause.STOPPED, restart=1)
    assert isinstance(story.step(), Submit)
    assert story.state.spent == {Cause.PREEMPTED: 1}


def test_an_object_that_ended_on_its_own_while_being_retired_counts() -> None:
    story = Story()
    story.submit()
    story.end(Cause.PREEMPTED)
    story.tell(Retiring(n=1, restart=0))
    story.end(Cause.COMPLETED, restart=1, code=0)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.SUCCEEDED


@dataclass
class Truth:
    """An object as the scheduler really has it."""

    n: int
    allowed: bool
    restart: int = 0
    alive: bool = True
    cause: Cause | None = None

    def restarts(self) -> None:
        self.restart, self.alive = self.restart + 1, True

    def seen(self) -> Observation:
        past = [EndedRestart(restart=each, cause=Cause.PREEMPTED) for each in range(self.restart)]
        if self.alive:
            return Observation(state=ObjectState.RUNNING, restart=self.restart, ended=tuple(past))
        last = EndedRestart(restart=self.restart, cause=self.cause)
        return Observation(state=ObjectState.ENDED, restart=self.restart, ended=(*past, last))


class World:
    """A scheduler that restarts, loses and ends objects as chance has it, and a supervisor that does every step."""

    def __init__(self, story: Story, chance: Random) -> None:
        self.story = story
        self.chance = chance
        self.objects: dict[int, Truth] = {}
        self.published = 0
        self.word = False
        """Whether a person spoke since the last execution began."""
        self.applied: Counter[Cause] = Counter()
        self.begun = 0
        self.person_stopped = False

    def begin(self, cause: Cause | None) -> None:
        """An execution begins, after an end for this cause."""
        assert sum(each.alive for each in self.objects.values()) <= 1, "two objects at once"
        if cause is not None and not self.word:
            self.applied[cause] += 1
            assert self.applied[cause] <= self.story.plan.rule(cause).budget, f"budget of {cause}"
            limit = self.story.spec.recovery.no_progress
            assert limit is None or self.story.state.fruitless < limit, "no progress"
        self.word = False
        self.begun += 1

    def last_cause(self) -> Cause | None:
        latest = self.story.state.newest
        if latest is None:
            return None
        if latest.deciding is None or latest.deciding.ended is None:
            return Cause.LAUNCH_FAILED
        return latest.deciding.ended.cause

    def live_a_little(self) -> None:
        """One thing happens to the newest object."""
        if not self.objects:
            return
        truth = self.objects[max(self.objects)]
        if truth.alive and self.chance.random() < 0.7:
            truth.alive = False
            truth.cause = self.chance.choice([*Cause, *[Cause.PREEMPTED, Cause.NODE_LOST, Cause.TIMED_OUT] * 5])
            self.person_stopped |= truth.cause is Cause.STOPPED
            self.published += self.chance.randrange(2)
        if not truth.alive and truth.allowed and truth.cause in SCHEDULER_RESTARTS and self.chance.random() < 0.6:
            # What restarts at once is seen together with its end, so each end gets a look of its own first.
            self.look(truth, Observation(state=ObjectState.ENDED, restart=truth.restart, ended=truth.seen().ended))
            truth.restarts()
            self.begin(truth.cause)

    def look(self, truth: Truth, observation: Observation) -> None:
        submission = self.story.state.submission(0, truth.n)
        assert submission is not None
        for item in news(submission, observation):
            if isinstance(item, Observed):
                self.story.tell(item)
                continue
            cause = item.cause or Cause.FAILED
            self.story.tell(Ended(n=truth.n, restart=item.restart, cause=cause, published=self.published))

    def stop(self, truth: Truth) -> None:
        if truth.alive:
            truth.alive, truth.cause = False, Cause.STOPPED

    def do(self, step: Step) -> bool:
        """Do one step as a supervisor would. False when nothing is left to do."""
        story = self.story
        match step:
            case Submit():
                before = story.state.newest
                assert before is None or not (before.live or before.may_restart or self.objects[before.n].allowed)
                cause = self.last_cause()
                story.intend()
                if self.chance.random() < 0.1:
                    story.tell(SubmitRefused(n=step.n, detail="no"))
                    self.objects[step.n] = Truth(step.n, allowed=False, alive=False)
                    self.begin(cause)
                    return True
                story.tell(Submitted(n=step.n, object=object_of(step.n)))
                self.objects[step.n] = Truth(step.n, allowed=step.restarts_allowed)
                self.begin(cause)
            case Requeue():
                story.tell(Requeueing(n=step.submission.n, restart=step.restart))
                truth = self.objects[step.submission.n]
                assert truth.allowed and step.restart == truth.restart + 1
                if self.chance.random() < 0.7:
                    cause = self.last_cause()
                    truth.restarts()
                    self.begin(cause)
            case ForbidRestarts():
                self.objects[step.submission.n].allowed = False
                story.tell(RestartsForbidden(n=step.submission.n))
            case Retire():
                self.retire(step.submission)
            case Poll():
                self.poll(step)
            case Append():
                story.tell(step.fact, generation=step.generation)
            case Held():
                self.word = True
                choices = [Resolution.RUN_AGAIN, Resolution.FROM_SCRATCH, Resolution.STOP]
                resolution = self.chance.choice(choices)
                self.person_stopped |= resolution is Resolution.STOP
                story.lift(resolution)
            case Finish():
                assert step.outcome is not Outcome.STOPPED or self.person_stopped, "stopped by nobody"
                story.tell(Finished(outcome=step.outcome))
            case Done() | NotOpened():
                return False
        return True

    def retire(self, submission: SubmissionState) -> None:
        truth = self.objects[submission.n]
        assert submission.newest is not None
        if submission.retiring is None:
            self.story.tell(Retiring(n=truth.n, restart=submission.newest.restart))
        if truth.allowed and truth.cause in SCHEDULER_RESTARTS and not truth.alive and self.chance.random() < 0.3:
            # The scheduler restarts it in the very moment before it is told not to.
            truth.restarts()
        truth.allowed = False
        self.stop(truth)
        if truth.restart == submission.newest.restart:
            self.story.tell(Retired(n=truth.n))
        else:
            self.look(truth, truth.seen())

    def poll(self, step: Poll) -> None:
        if step.wake_at is not None and self.chance.random() < 0.5:
            self.story.now = max(self.story.now, step.wake_at)
        self.story.later(timedelta(seconds=30))
        self.live_a_little()
        for submission in step.stop:
            self.stop(self.objects[submission.n])
        for submission in step.observe:
            self.look(self.objects[submission.n], self.objects[submission.n].seen())


actions = some.sampled_from(["requeue", "resubmit", "hold"])
short_rules = some.fixed_dictionaries(
    {"action": actions, "budget": some.integers(1, 4), "delay": some.sampled_from(["0s", "45s"])}
)


@given(
    some.dictionaries(causes, short_rules, max_size=4),
    some.one_of(some.none(), some.integers(1, 3)),
    some.booleans(),
    some.randoms(use_true_random=False),
)
@settings(max_examples=200)
def test_whatever_happens_budgets_hold_and_no_execution_is_both_requeued_and_resubmitted(
    rules: dict[Cause, dict[str, Any]], no_progress: int | None, can_requeue: bool, chance: Random
) -> None:
    # given any rules on a scheduler that restarts by itself, or cannot
    able = SCRIPTED.model_copy(update={"requeue": can_requeue})
    every = {cause: {"action": "requeue", "budget": 3} for cause in (Cause.PREEMPTED, Cause.NODE_LOST)}
    story = Story({"recovery": {**every, **rules, "no_progress": no_progress}}, able)
    world = World(story, chance)
    # when a supervisor does every step that is due
    for _ in range(80):
        if not world.do(story.step()):
            break
    # then each step kept what World asserts, and something ran
    assert world.begun >= 1
