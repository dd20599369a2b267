"""A fact survives its bytes; what this version does not know makes it a reader, what is broken is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from prefect_dispatch.errors import MalformedDocument, ReadOnlyLineage
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.facts import (
    KINDS,
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
    Opened,
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
from prefect_dispatch.model.observation import Exit, ObjectState
from prefect_dispatch.testing.story import BEGIN, Story, object_of, token_of

FACTS: tuple[Fact, ...] = (
    Story({"saves": {"kind": "settle", "pattern": "*.pt", "settle": "12d"}, "identity": {"seed": 7}}).opening(),
    CarriedBy(flow_run="8c1e"),
    Submitting(
        n=1, token=token_of(1), writer="w", give_up_at=BEGIN, base="scratch", floor=1_000_000, restarts_allowed=True
    ),
    Submitted(n=1, object=object_of(1)),
    SubmitRefused(n=1, detail="invalid partition"),
    Abandoned(n=1),
    RestartsForbidden(n=1),
    Retiring(n=1, restart=2),
    Retired(n=1),
    Requeueing(n=1, restart=1),
    Observed(n=1, restart=0, state=ObjectState.RUNNING, nodes=("a", "b"), started_at=BEGIN),
    Ended(n=1, restart=0, cause=Cause.FAILED, exit=Exit(code=1), nodes=("a",), ended_at=BEGIN, published=3, detail="é"),
    HoldOpened(hold="h1", why="x", cause=Cause.FAILED, stands_for=Action.REQUEUE, n=1, restart=0, object=object_of(1)),
    Cessation(hold="h1", object=object_of(1), answer="ceased"),
    HoldDue(hold="h1"),
    HoldLifted(hold="h1", lifted_by=LiftedBy.PERSON, resolution=Resolution.CONTINUE_FROM, base="latest", who="ops"),
    StopRequested(intent="suspend", who="ops"),
    Superseded(by_generation=1),
    Finished(outcome=Outcome.SUCCEEDED, detail="the program exited 0", final_save="x"),
    Reopened(who="ops", after=Outcome.HOLD_EXPIRED, note="the node is back"),
)


def entry(fact: Fact, at: datetime = BEGIN) -> Entry:
    return Entry(seq=7, at=at, by="writer", nonce="0123", generation=2, fact=fact)


def test_there_is_an_example_of_every_kind() -> None:
    assert {fact.kind for fact in FACTS} == KINDS and len(FACTS) == len(KINDS)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.kind)
def test_a_fact_survives_its_bytes_in_one_flat_object(fact: Fact) -> None:
    written = entry(fact, datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))))
    assert Entry.decode(written.encode(), "x") == written
    document = json.loads(written.encode())
    assert document["format"] == 1 and document["kind"] == fact.kind and document["seq"] == 7
    assert "fact" not in document


def document(**changes: Any) -> bytes:
    return json.dumps({**entry(Submitted(n=1, object=object_of(1))).document(), **changes}).encode()


@pytest.mark.parametrize("changes", [{"kind": "transcended"}, {"format": 2}, {"format": 2, "kind": "transcended"}])
def test_what_a_newer_version_wrote_makes_this_one_a_reader(changes: dict[str, Any]) -> None:
    with pytest.raises(ReadOnlyLineage, match=r"^record/7 .*update prefect-dispatch"):
        Entry.decode(document(**changes), "record/7")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": None}, "has kind = None"),
        ({"kind": 5}, "has kind = 5"),
        ({"seq": 0}, "is not a fact: seq = "),
        ({"seq": None}, "is not a fact: seq = "),
        ({"generation": -1}, "is not a fact: generation = "),
        ({"generation": 9_223_372}, "is not a fact: generation = "),
        ({"at": "2026-03-01T12:00:00"}, "is not a fact: at = .*timezone"),
        ({"at": "9999-03-01T12:00:00Z"}, "is not a fact: at = .*year"),
        ({"n": 0}, "is not a fact: n = "),
        ({"n": 1_000_000}, "is not a fact: n = "),
        ({"object": None}, "is not a fact: object = "),
        ({"surprise": 1}, "is not a fact: surprise = "),
    ],
)
def test_what_is_broken_is_named(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(MalformedDocument, match=f"^record/7 {why}") as malformed:
        Entry.decode(document(**changes), "record/7")
    assert "\n" not in str(malformed.value)


@pytest.mark.parametrize(
    ("fact", "changes"),
    [
        ("submitting", {"token": "short"}),
        ("submitting", {"base": "newest"}),
        ("submitting", {"floor": -1}),
        ("submitting", {"floor": 2**63}),
        ("ended", {"restart": 1_000_000}),
        ("ended", {"published": -1}),
        ("ended", {"cause": "boredom"}),
        ("hold_lifted", {"base": "../x"}),
    ],
)
def test_a_value_that_no_later_step_could_use_is_refused_when_it_is_read(fact: str, changes: dict[str, Any]) -> None:
    whole = next(each for each in FACTS if each.kind == fact)
    with pytest.raises(MalformedDocument, match=f"{next(iter(changes))} = "):
        Entry.decode(json.dumps({**entry(whole).document(), **changes}).encode(), "x")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 1}', b"\xff"])
def test_bytes_that_are_no_fact_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedDocument, match="record/7"):
        Entry.decode(data, "record/7")


def test_a_time_without_its_zone_is_refused_at_the_border() -> None:
    with pytest.raises(ValueError, match="timezone"):
        entry(Reopened(), datetime(2026, 3, 1))
    assert entry(Reopened(), datetime(2026, 3, 1, tzinfo=UTC)).at.tzinfo is not None


def test_an_opening_from_before_there_were_supersessions_is_read_and_can_be_superseded() -> None:
    # given the first fact of a record as it was written then
    document = entry(Story().opening()).document()
    for field in ("parent", "request", "note"):
        del document[field]
    del document["spec"]["on_finished"]
    # when it is read
    old = Entry.decode(json.dumps(document).encode(), "x").fact
    # then it is one without a parent, whose lineage refuses to begin anew by itself
    assert isinstance(old, Opened)
    assert (old.parent, old.request, old.note, old.spec.on_finished) == (None, "", "", "refuse")
    # and another generation can take its place; a fact of kind superseded says nothing more
    story = Story(opened=False)
    story.tell(old)
    before = story.tell(Superseded(by_generation=1))
    assert before.generation == 0 and before.open
    after = story.tell(story.opening(), generation=1)
    assert after.parent is not None and after.parent.generation == 0
