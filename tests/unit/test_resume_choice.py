"""Base and floor decide what may be resumed from, whatever else is published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedDocument
from prefect_dispatch.format.epoch import MAX_EPOCH, Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice

epochs = some.builds(Epoch, some.integers(0, 1), some.integers(1, 3), some.integers(0, 2))
publications = some.builds(Publication, epochs, some.integers(0, 3), some.sampled_from(["a", "b"]))
floors = some.one_of(some.just(0), epochs.map(lambda epoch: epoch.number))
choices = some.builds(ResumeChoice, some.one_of(some.just("latest"), some.just("scratch"), publications), floors)


def oracle(choice: ResumeChoice, listed: set[Publication]) -> list[Publication]:
    """Design section 8, word for word: those of the floor's epoch or later win; until there is one, the base holds."""
    later = {each for each in listed if each.epoch.number >= choice.floor}
    if later:
        allowed = later
    elif choice.base == "latest":
        allowed = listed
    elif choice.base == "scratch":
        allowed = set()
    else:
        assert isinstance(choice.base, Publication)
        allowed = {choice.base}
    ordered: list[Publication] = []
    while allowed:
        greatest = next(iter(allowed))
        for each in allowed:
            if (each.epoch, each.step, each.path.encode()) > (greatest.epoch, greatest.step, greatest.path.encode()):
                greatest = each
        ordered.append(greatest)
        allowed = allowed - {greatest}
    return ordered


def offered(choice: ResumeChoice, listed: set[Publication], forged: frozenset[Publication] = frozenset()) -> list:
    """What is offered when none is taken."""
    greatest_first = sorted(listed, key=lambda each: each.order, reverse=True)
    return list(choice.candidates(greatest_first, forged.__contains__))


@given(choices, some.sets(publications, max_size=8))
def test_candidates_are_those_of_the_design_in_order(choice: ResumeChoice, listed: set[Publication]) -> None:
    assert offered(choice, listed) == oracle(choice, listed)


@given(choices, some.sets(publications, max_size=8), some.frozensets(publications, max_size=8))
def test_forged_names_decide_nothing(
    choice: ResumeChoice, listed: set[Publication], forged: frozenset[Publication]
) -> None:
    genuine = [each for each in offered(choice, listed, forged) if each not in forged]
    assert genuine == [each for each in oracle(choice, listed - forged) if each not in forged]


@given(choices, some.sets(publications, max_size=8))
def test_no_more_is_taken_from_the_list_than_is_offered(choice: ResumeChoice, listed: set[Publication]) -> None:
    # given a list that says how far it was read
    greatest_first = sorted(listed, key=lambda each: each.order, reverse=True)
    read: list[Publication] = []
    candidates = choice.candidates(read.append(each) or each for each in greatest_first)
    # when the first candidate is taken
    first = next(candidates, None)
    # then no more than the greatest was looked at: it is that one, or it is below the floor
    assert read == greatest_first[:1]
    assert first in (*read, choice.base, None)


def test_a_late_save_of_an_old_run_undoes_no_choice() -> None:
    # given a person's choice of a start from scratch, made for submission 3
    floor = Epoch(0, 3, 0).number
    late = Publication(Epoch(0, 2, 0), 9000, "old")
    assert list(ResumeChoice("scratch", floor).candidates([late])) == []
    # when the new run has saved
    own = Publication(Epoch(0, 3, 0), 1, "new")
    # then only that counts
    assert list(ResumeChoice("scratch", floor).candidates([own, late])) == [own]


def test_below_a_floor_that_nothing_has_reached_the_next_one_is_offered_too() -> None:
    listed = [Publication(Epoch(0, 1, 0), step, "a") for step in (3, 2, 1)]
    assert list(ResumeChoice("latest", Epoch(0, 2, 0).number).candidates(listed)) == listed


def test_a_base_that_is_gone_is_still_offered_and_never_becomes_a_start_from_scratch() -> None:
    base = Publication(Epoch(0, 1, 0), 7, "kept")
    newer = Publication(Epoch(0, 2, 0), 8, "newer")
    assert list(ResumeChoice(base, Epoch(0, 3, 0).number).candidates([newer])) == [base]


@given(choices)
def test_a_choice_survives_its_document(choice: ResumeChoice) -> None:
    document = choice.encode()
    assert ResumeChoice.decode(str(document["base"]), int(document["floor"]), "x") == choice


@pytest.mark.parametrize(
    ("base", "floor", "why"),
    [
        ("newest", 0, "base 'newest'"),
        ("", 0, "base ''"),
        ("latest", -1, "negative"),
        ("latest", MAX_EPOCH + 1, "above"),
    ],
)
def test_other_choices_are_refused(base: str, floor: int, why: str) -> None:
    with pytest.raises(MalformedDocument, match=f"the place has .*{why}"):
        ResumeChoice.decode(base, floor, "the place")
