"""What an observation tells that the record does not know, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Ended, Observed
from prefect_dispatch.model.observation import EndedRestart, Exit, ObjectState, Observation
from prefect_dispatch.model.observing import news
from prefect_dispatch.model.state import SubmissionState
from prefect_dispatch.testing.story import Story


def told(story: Story, observation: Observation) -> tuple[Observed | EndedRestart, ...]:
    return news(newest(story), observation)


def newest(story: Story) -> SubmissionState:
    assert story.state.newest is not None
    return story.state.newest


def submitted() -> Story:
    story = Story()
    story.submit()
    return story


def ended(restart: int, cause: Cause = Cause.PREEMPTED) -> EndedRestart:
    return EndedRestart(restart=restart, cause=cause, evidence="accounting")


def take(story: Story, observation: Observation) -> None:
    """Append what is new, as a supervisor does."""
    for item in told(story, observation):
        if isinstance(item, Observed):
            story.tell(item)
        else:
            story.tell(Ended(n=1, restart=item.restart, cause=item.cause or Cause.FAILED, nodes=item.nodes))


def test_a_change_is_told_once() -> None:
    story = submitted()
    queued = Observation(state=ObjectState.QUEUED)
    running = Observation(state=ObjectState.RUNNING, nodes=("node1",))
    assert told(story, queued) == (Observed(n=1, restart=0, state=ObjectState.QUEUED),)
    take(story, queued)
    assert told(story, queued) == ()
    take(story, running)
    assert told(story, running) == ()
    assert told(story, running.model_copy(update={"nodes": ("node2",)})) != ()


def test_an_end_is_told_once_with_the_accounting_s_words() -> None:
    story = submitted()
    story.run()
    over = Observation(state=ObjectState.ENDED, ended=(ended(0, Cause.NODE_LOST),))
    assert told(story, over) == (ended(0, Cause.NODE_LOST),)
    take(story, over)
    assert told(story, over) == ()


def test_restarts_between_two_polls_are_each_told_the_silent_ones_as_unobserved() -> None:
    # given restart 1 seen running
    story = submitted()
    story.end(Cause.PREEMPTED)
    story.run(restart=1)
    # when restart 4 is seen next, and accounting knows of the end of 2 only
    seen = Observation(state=ObjectState.RUNNING, restart=4, ended=(ended(0), ended(2, Cause.NODE_LOST)))
    # then three ends come out, in order, and what runs now
    found = told(story, seen)
    assert [(each.restart, each.cause) for each in found if isinstance(each, EndedRestart)] == [
        (1, Cause.PREEMPTED),
        (2, Cause.NODE_LOST),
        (3, Cause.PREEMPTED),
    ]
    assert [each.evidence for each in found] == ["unobserved", "accounting", "unobserved", ""]
    assert found[-1] == Observed(n=1, restart=4, state=ObjectState.RUNNING)


def test_an_end_that_is_known_is_not_told_again_with_the_restart_after_it() -> None:
    story = submitted()
    story.end(Cause.NODE_LOST)
    found = told(story, Observation(state=ObjectState.RUNNING, restart=1, ended=(ended(0),)))
    assert found == (Observed(n=1, restart=1, state=ObjectState.RUNNING),)


@pytest.mark.parametrize("count", [1, 2])
def test_a_count_seen_while_ending_belongs_to_the_run_before(count: int) -> None:
    story = submitted()
    story.run()
    found = told(story, Observation(state=ObjectState.ENDING, restart=count))
    assert found == (Observed(n=1, restart=0, state=ObjectState.ENDING),)


def test_a_count_seen_while_ending_is_not_believed_where_nothing_is_known_yet() -> None:
    found = told(submitted(), Observation(state=ObjectState.ENDING, restart=1))
    assert found == (Observed(n=1, restart=0, state=ObjectState.ENDING),)


def test_unknown_is_told_once_and_ends_nothing() -> None:
    story = submitted()
    story.run()
    lost = Observation(state=ObjectState.UNKNOWN, restart=0, evidence="REVOKED?")
    assert told(story, lost) == (Observed(n=1, restart=0, state=ObjectState.UNKNOWN, evidence="REVOKED?"),)
    take(story, lost)
    assert told(story, lost) == ()
    assert newest(story).live
    # and an end that is known stays known
    story.end(Cause.FAILED)
    assert told(story, lost) == ()


def test_an_answer_from_the_past_tells_nothing() -> None:
    story = submitted()
    story.end(Cause.PREEMPTED)
    story.run(restart=1)
    assert told(story, Observation(state=ObjectState.RUNNING, restart=0)) == ()
    assert told(story, Observation(state=ObjectState.ENDED, restart=0, ended=(ended(0),))) == ()


@pytest.mark.parametrize(
    ("observation", "why"),
    [
        (Observation(state=ObjectState.ENDED), "is said to have ended, but not how"),
        (Observation(state=ObjectState.RUNNING, restart=1001), "says restart 1001 after 0"),
    ],
)
def test_an_answer_that_cannot_be_is_an_error_that_names_the_object(observation: Observation, why: str) -> None:
    with pytest.raises(SchedulerError, match=f"object scripted:0-1 {why}"):
        told(submitted(), observation)


@some.composite
def observations(draw: some.DrawFn) -> Observation:
    """An answer that could be: with the ends before the restart that it names, all of them or some."""
    state, restart = draw(some.sampled_from(ObjectState)), draw(some.integers(0, 4))
    numbers = range(restart + 1 if state is ObjectState.ENDED else restart)
    known = [each for each in numbers if draw(some.integers(0, 3)) or each == restart]
    ends = tuple(EndedRestart(restart=each, exit=Exit(code=1)) for each in known)
    return Observation(state=state, restart=restart, ended=ends, nodes=draw(some.sampled_from([(), ("node1",)])))


def in_order(answers: list[Observation]) -> list[Observation]:
    return sorted(answers, key=lambda answer: answer.restart)


some_answers = some.lists(observations(), max_size=6)


@given(some.one_of(some_answers, some_answers.map(in_order)))
def test_any_answers_are_taken_once_and_ends_are_never_told_twice(answers: list[Observation]) -> None:
    story = submitted()
    for answer in answers:
        before = {each.restart for each in newest(story).executions if each.ended}
        try:
            found = told(story, answer)
        except SchedulerError:
            continue
        ends = [each.restart for each in found if isinstance(each, EndedRestart)]
        assert len(ends) == len(set(ends)) and not before & set(ends)
        take(story, answer)
        assert told(story, answer) == ()
