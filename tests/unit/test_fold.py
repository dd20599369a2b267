"""The fold is total, deterministic and the same from any snapshot; what comes too late changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    CarriedBy,
    Cessation,
    Ended,
    Entry,
    Fact,
    Finished,
    HoldDue,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Observed,
    Outcome,
    Reopened,
    Requeueing,
    Resolution,
    RestartsForbidden,
    Retired,
    Retiring,
    StopRequested,
    SubmitRefused,
    Submitted,
    Submitting,
    Superseded,
)
from prefect_dispatch.model.fold import apply, fold
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import Landing, LineageState
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import BEGIN, Story, object_of, token_of

numbers = some.sampled_from([1, 2, 3, 999_999])
restarts = some.sampled_from([0, 1, 2, 999_999])
moments = some.datetimes(datetime(1, 1, 2), datetime(9000, 12, 30), timezones=some.just(UTC))
holds = some.sampled_from(["h1", "h2"])
SHARED = Story({"shared_checkpoint": True, "recovery": {"preempted": {"action": "requeue", "budget": 1}}})
OPENINGS = [
    SHARED.opening(),
    *(
        Story({"recovery": recovery, "max_pending": "36500d"}, root_visible=visible).opening(base, floor)
        for recovery, visible, base, floor in (
            ({}, True, "latest", 0),
            (
                {"no_progress": 2, "failed": {"action": "requeue", "budget": 2, "delay": "36500d", "max": "36500d"}},
                False,
                "scratch",
                7,
            ),
            (
                {"preempted": {"action": "resubmit", "budget": 1, "delay": "1h"}, "final_exit_codes": [3]},
                True,
                "latest",
                0,
            ),
        )
    ),
]
facts: some.SearchStrategy[Fact] = some.one_of(
    some.sampled_from(OPENINGS),
    some.builds(CarriedBy, flow_run=some.sampled_from(["a", "b"])),
    some.builds(
        Submitting,
        n=numbers,
        token=numbers.map(lambda n: token_of(n % 1000)),
        writer=some.just("w"),
        give_up_at=moments,
        base=some.sampled_from(["latest", "scratch"]),
        floor=some.integers(0, 10**13),
        restarts_allowed=some.booleans(),
    ),
    some.builds(Submitted, n=numbers, object=some.sampled_from([object_of(1), object_of(2)])),
    some.builds(SubmitRefused, n=numbers, detail=some.just("no")),
    some.builds(Abandoned, n=numbers),
    some.builds(RestartsForbidden, n=numbers),
    some.builds(Retiring, n=numbers, restart=restarts),
    some.builds(Retired, n=numbers),
    some.builds(Requeueing, n=numbers, restart=restarts),
    some.builds(Observed, n=numbers, restart=restarts, state=some.sampled_from(ObjectState)),
    some.builds(
        Ended,
        n=numbers,
        restart=restarts,
        cause=some.sampled_from(Cause),
        published=some.one_of(some.none(), some.integers(0, 3)),
    ),
    some.builds(
        HoldOpened,
        hold=holds,
        why=some.just("x"),
        token=some.one_of(some.none(), numbers.map(lambda n: token_of(n % 1000))),
        object=some.sampled_from([None, object_of(1)]),
        n=some.just(1),
        restart=some.just(0),
        until=some.one_of(some.none(), moments),
        signal_may_lift=some.booleans(),
    ),
    some.builds(HoldDue, hold=holds),
    some.builds(Cessation, hold=holds, object=some.just(object_of(1)), answer=some.just("ceased")),
    some.builds(
        HoldLifted, hold=holds, lifted_by=some.sampled_from(LiftedBy), resolution=some.sampled_from(Resolution)
    ),
    some.builds(StopRequested, intent=some.sampled_from(["abandon", "suspend"])),
    some.builds(Superseded, by_generation=some.integers(0, 3)),
    some.builds(Finished, outcome=some.sampled_from(Outcome)),
    some.builds(Reopened),
)
stamped = some.tuples(facts, some.integers(0, 2), moments)


def numbered(parts: list[tuple[Fact, int, datetime]]) -> list[Entry]:
    return [
        Entry(seq=seq, at=at, by="w", nonce="n", generation=generation, fact=fact)
        for seq, (fact, generation, at) in enumerate(parts, 1)
    ]


opening = some.tuples(some.sampled_from(OPENINGS), some.just(0), moments)
# Half of the nonsense begins with an opened lineage, or most of it would be ignored.
records = some.one_of(
    some.lists(stamped, max_size=25),
    some.tuples(opening, some.lists(some.tuples(facts, some.just(0), moments), max_size=25)).map(
        lambda parts: [parts[0], *parts[1]]
    ),
).map(numbered)


@given(records)
def test_every_prefix_of_any_record_folds_and_has_a_next_step(entries: list[Entry]) -> None:
    state = LineageState()
    for entry in entries:
        state = apply(state, entry)
        assert (state.seq, state.at) == (entry.seq, entry.at)
        assert next_step(state, entry.at, SCRIPTED) == next_step(state, entry.at, SCRIPTED)
    assert state == fold(entries) == fold(entries)


@given(records, some.data())
def test_folding_goes_on_from_any_snapshot(entries: list[Entry], data: some.DataObject) -> None:
    middle = data.draw(some.integers(0, len(entries)))
    snapshot = LineageState.model_validate(fold(entries[:middle]).model_dump(mode="json"))
    assert fold(entries[middle:], snapshot) == fold(entries)


@given(records)
@settings(max_examples=50)
def test_a_record_survives_its_bytes(entries: list[Entry]) -> None:
    assert [Entry.decode(entry.encode(), "x") for entry in entries] == entries


def submitted(**spec: Any) -> Story:
    story = Story(spec)
    story.submit()
    return story


def unchanged(story: Story, *facts: Fact, generation: int | None = None) -> bool:
    before = story.state
    after = story.tell(*facts, generation=generation)
    return after == before.model_copy(update={"seq": after.seq, "at": after.at, "latest_at": after.latest_at})


def test_nothing_counts_before_a_lineage_is_opened() -> None:
    story = Story(opened=False)
    assert unchanged(
        story, StopRequested(intent="abandon"), Finished(outcome=Outcome.FAILED), Submitted(n=1, object=object_of(1))
    )
    story.tell(CarriedBy(flow_run="a"))
    assert story.tell(story.opening()).carried_by == "a"


def test_who_carries_a_generation_says_so_for_that_one_alone() -> None:
    # given a generation that a run carries, and another one in its place
    story = submitted()
    story.tell(CarriedBy(flow_run="old"))
    story.tell(story.opening(), generation=1)
    # then nobody carries it yet, and a late word of the old run's does not change that
    assert story.state.carried_by is None
    assert unchanged(story, CarriedBy(flow_run="old"), generation=0)
    assert story.tell(CarriedBy(flow_run="new")).carried_by == "new"


def test_an_end_counts_once_and_never_before_its_object_is_known() -> None:
    story = Story()
    story.intend()
    assert unchanged(story, Ended(n=1, restart=0, cause=Cause.PREEMPTED))
    story.tell(Submitted(n=1, object=object_of(1)))
    story.end(Cause.PREEMPTED)
    assert unchanged(story, Ended(n=1, restart=0, cause=Cause.FAILED))
    assert story.state.spent == {Cause.PREEMPTED: 1}


def test_a_restart_that_is_over_is_never_seen_running_again() -> None:
    story = submitted()
    story.end(Cause.PREEMPTED, restart=1)
    assert unchanged(story, Observed(n=1, restart=0, state=ObjectState.RUNNING))
    assert unchanged(story, Observed(n=1, restart=1, state=ObjectState.RUNNING))
    assert unchanged(story, Ended(n=1, restart=0, cause=Cause.PREEMPTED))


def test_a_submission_lands_once_is_abandoned_only_before_and_may_turn_up_afterwards() -> None:
    story = submitted()
    assert unchanged(story, Abandoned(n=1), SubmitRefused(n=1, detail="no"), Submitted(n=1, object=object_of(2)))
    late = Story()
    late.intend()
    assert late.tell(Abandoned(n=1)).submissions[0].landing is Landing.ABANDONED
    assert late.tell(Submitted(n=1, object=object_of(1))).submissions[0].live


def test_a_submission_that_is_not_newer_is_ignored() -> None:
    story = submitted()
    again = Submitting(
        n=1, token=token_of(9), writer="x", give_up_at=BEGIN, base="scratch", floor=0, restarts_allowed=False
    )
    assert unchanged(story, again)
    assert unchanged(story, again.model_copy(update={"n": 2}), generation=1)


def test_how_long_it_was_queued_does_not_begin_anew_with_each_word_about_it() -> None:
    story = submitted()
    story.tell(Observed(n=1, restart=0, state=ObjectState.QUEUED))
    since = story.now
    story.later(timedelta(minutes=1))
    story.tell(Observed(n=1, restart=0, state=ObjectState.QUEUED, nodes=("a",)))
    assert story.state.submissions[0].executions[0].since == since
    story.run()
    execution = story.state.submissions[0].executions[0]
    assert (execution.since, execution.started_at) == (story.now, story.now)


def test_a_new_generation_keeps_what_may_still_live_of_the_old_one() -> None:
    # given submission 1 ended, 2 alive, 3 on its way
    story = Story({"recovery": {"failed": {"action": "resubmit", "budget": 9}}})
    story.submit()
    story.end(Cause.FAILED)
    story.tell(Retired(n=1))
    story.submit()
    # when a second generation is opened with the first one's choice
    story.tell(story.opening(base="scratch", floor=1_000_000), generation=1)
    # then only what is not known to have ended is an obligation, and counts start anew
    state = story.state
    assert (state.generation, state.base, state.floor) == (1, "scratch", 1_000_000)
    assert [(each.generation, each.n) for each in state.obligations] == [(0, 2)]
    assert state.submissions == () and state.spent == {} and state.hold is None
    # and the old one's end is noted without being charged to the new one
    story.submit()
    after = story.tell(Ended(n=2, restart=0, cause=Cause.FAILED), generation=0)
    assert not after.obligations[0].live and after.spent == {}
    # and an older generation is not opened again
    assert unchanged(story, story.opening(), generation=0)


@pytest.mark.parametrize(
    ("published", "fruitless"),
    [([0, 0, 0], 3), ([1, 1, 1], 2), ([1, 2, 3], 0), ([0, 1, 1], 1), ([None, None, None], 0), ([0, None, 0], 2)],
)
def test_executions_without_a_new_save_are_counted_in_a_row(published: list[int | None], fruitless: int) -> None:
    story = submitted(recovery={"no_progress": 9})
    for restart, count in enumerate(published):
        story.end(Cause.PREEMPTED, restart=restart, published=count)
    assert story.state.fruitless == fruitless


def test_where_the_root_cannot_be_seen_every_execution_is_counted() -> None:
    story = Story({"recovery": {"no_progress": 9}}, root_visible=False)
    story.submit()
    for restart in range(3):
        story.end(Cause.PREEMPTED, restart=restart, published=None)
    assert story.state.fruitless == 3


@pytest.mark.parametrize(
    "fact", [HoldOpened(hold="h9", why="x"), StopRequested(intent="abandon"), Finished(outcome=Outcome.FAILED)]
)
def test_after_the_end_nothing_is_decided(fact: Fact) -> None:
    story = Story()
    story.tell(Finished(outcome=Outcome.STOPPED))
    assert unchanged(story, fact)
    assert story.tell(Reopened()).open


def test_a_hold_takes_no_stop_back_and_fulfils_a_suspension() -> None:
    story = Story()
    story.tell(StopRequested(intent="abandon"), HoldOpened(hold="h1", why="x"))
    assert story.state.stop is not None
    other = Story()
    other.tell(StopRequested(intent="suspend"), HoldOpened(hold="h1", why="x"))
    assert other.state.stop is None


def test_only_the_open_hold_can_be_lifted() -> None:
    story = Story()
    story.tell(HoldOpened(hold="h1", why="x"))
    lift = HoldLifted(hold="h2", lifted_by=LiftedBy.PERSON, resolution=Resolution.RUN_AGAIN)
    assert unchanged(story, lift)
    assert story.tell(lift.model_copy(update={"hold": "h1"})).hold is None
