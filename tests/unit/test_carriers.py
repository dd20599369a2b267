"""Who carries a lineage, by its record."""

from __future__ import annotations

from datetime import UTC, datetime

from prefect_dispatch.model.facts import CarriedBy, Entry, Fact, Reopened
from prefect_dispatch.supervisor.carriers import carried_generation, carrier_of, process_carrier, settled_at
from prefect_dispatch.testing.story import Story

AT = datetime(2026, 11, 30, tzinfo=UTC)


def entries(*facts: tuple[int, Fact]) -> list[Entry]:
    return [
        Entry(seq=seq, at=AT, generation=generation, by="w", nonce="0" * 16, fact=fact)
        for seq, (generation, fact) in enumerate(facts, 1)
    ]


def opened(**fields: object) -> Fact:
    fact = Story().state.opened
    assert fact is not None
    return fact.model_copy(update=fields)


def test_the_last_one_carries() -> None:
    found = carrier_of(entries((0, opened()), (0, CarriedBy(flow_run="a")), (0, CarriedBy(flow_run="b"))))
    assert found is not None and found.flow_run == "b"


def test_what_carried_before_an_opening_or_a_reopening_carries_nothing() -> None:
    before = ((0, opened()), (0, CarriedBy(flow_run="a")))
    assert carrier_of(entries(*before, (1, opened(parent=0)))) is None
    assert carrier_of(entries(*before, (0, Reopened(who="ada", note="")))) is None


def test_a_run_that_opens_a_generation_carries_it() -> None:
    found = carrier_of(entries((0, opened()), (0, CarriedBy(flow_run="a")), (1, opened(parent=0, request="b"))))
    assert found is not None and found.flow_run == "b"


def test_who_carried_an_older_generation_and_says_so_late_carries_nothing() -> None:
    late = entries((0, opened()), (1, opened(parent=0)), (1, CarriedBy(flow_run="b")), (0, CarriedBy(flow_run="a")))
    found = carrier_of(late)
    assert found is not None and found.flow_run == "b"
    assert (carried_generation(late, "a"), carried_generation(late, "b"), carried_generation(late, "c")) == (0, 1, None)


def test_a_taking_over_settles_nothing() -> None:
    assert settled_at(entries((0, opened()), (0, CarriedBy(flow_run="a")))) == 1
    assert settled_at([]) == 0


def test_a_process_is_no_other_that_has_its_number_on_another_host() -> None:
    first, second = process_carrier(), process_carrier()
    assert first.startswith("process-") and second.startswith("process-")
    assert first != second
