"""A person's choices: each is one fact or a clear no, whoever else answers at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from prefect_dispatch.errors import LineageError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import (
    Finished,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Outcome,
    Reopened,
    Resolution,
    StopRequested,
)
from prefect_dispatch.model.steps import Done, Finish, Submit
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.named_save import require_published
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from support.held_lineage import HeldLineage

NAME = Publication(Epoch(0, 1, 0), 40, f"exec/{'a' * 16}-0/step-40").name


@pytest.fixture
def held(tmp_path) -> HeldLineage:
    return HeldLineage(tmp_path)


def test_run_again_submits_once(held):
    choices.run_again(held.record(), held.hold, who="ada", note="the node is back")
    assert isinstance(held.step(held.record()), Submit)
    (lift,) = held.lifts()
    assert (lift.who, lift.note, lift.lifted_by) == ("ada", "the node is back", LiftedBy.PERSON)


def test_from_a_save_chooses_base_and_floor(held):
    # given
    held.root().store.ledger("pub").create(NAME)
    # when
    choices.continue_from(held.record(), NAME, held.hold, who="ada")
    # then
    step = held.step(held.record())
    assert (step.base, step.floor) == (NAME, Epoch(0, 2, 0).number)


def test_a_save_is_named_by_its_path_too_where_that_is_published_once(held):
    # given
    ledger, save = held.root().store.ledger("pub"), Publication.parse(NAME)
    ledger.create(NAME)
    # when
    choices.continue_from(held.record(), save.path, held.hold, who="ada")
    # then
    assert held.step(held.record()).base == NAME
    # given a path that was published twice
    ledger.create(replace(save, step=save.step + 1).name)
    # then it is told to choose
    with pytest.raises(LineageError, match=f"published 2 times; name one of them in full: {NAME}, "):
        require_published("digits", root_view_of("digits", held.record().refresh()), save.path)


def test_a_save_that_is_not_there_is_refused_before_anything_is_written(held):
    # given that the root is there, without that save
    held.root()
    before = len(held.record().entries())
    # when
    for wrong, word in ((NAME, "not published"), ("step-40", "dispatch-job list")):
        with pytest.raises(LineageError, match=word):
            choices.continue_from(held.record(), wrong, held.hold, who="ada")
    # then
    assert len(held.record().entries()) == before


def test_stop_ends_the_job(held):
    choices.stop(held.record(), who="ada")
    step = held.step(held.record())
    assert isinstance(step, Finish) and step.outcome is Outcome.STOPPED


def test_the_second_answer_is_told_of_the_first_and_changes_nothing(held):
    # given
    choices.run_again(held.record(), held.hold, who="ada")
    # when somebody answers the same hold, with the same words or others
    for again in (choices.run_again, choices.from_scratch, choices.stop):
        with pytest.raises(LineageError, match=r"answered.* by ada: run it again"):
            again(held.record(), held.hold, who="bob")
    # then
    assert len(held.lifts()) == 1


def test_an_answer_to_an_old_hold_is_not_one_to_the_new(held):
    # given a second hold
    choices.run_again(held.record(), held.hold, who="ada")
    record = held.record()
    record.refresh()
    held.submit(record, 2)
    new = held.preempt(record, 2)
    # when somebody answers the first one, late
    with pytest.raises(LineageError, match=f"what waits for an answer now is {new}"):
        choices.stop(held.record(), held.hold, who="bob")
    # then the second one waits
    assert held.record().refresh().hold.opened.hold == new


def test_a_hold_that_never_was_is_named(held):
    with pytest.raises(LineageError, match="'h77' of 'digits' is none of this lineage"):
        choices.stop(held.record(), "h77", who="ada")


def test_many_at_once_and_one_wins(held):
    # given ten persons with a connection of their own
    barrier = threading.Barrier(10)
    outcomes: list[str] = []
    ways: list[Callable] = [choices.run_again, choices.stop, choices.from_scratch]

    def answer(number: int) -> None:
        record = held.record()
        record.refresh()
        barrier.wait()
        try:
            ways[number % 3](record, held.hold, who=f"p{number}")
            outcomes.append("won")
        except LineageError as error:
            outcomes.append(str(error))

    # when they answer at the same moment
    threads = [threading.Thread(target=answer, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # then one answer is in the record, and nine were told of it
    assert sorted(each == "won" for each in outcomes) == [False] * 9 + [True]
    assert all("answered" in each for each in outcomes if each != "won")
    assert len(held.lifts()) == 1


def test_a_person_overrules_the_site_until_the_next_submission(held):
    # given that the site was faster by a moment
    held.ceased()
    # when a person answers
    choices.from_scratch(held.record(), held.hold, who="ada")
    # then that holds
    assert held.step(held.record()).base == "scratch"


def test_after_the_submission_only_a_stop_still_counts(held):
    # given that the site was faster, and the job was submitted again
    held.submit(held.ceased(), 2)
    # when persons answer the hold that they saw
    with pytest.raises(LineageError, match="by the signal"):
        choices.from_scratch(held.record(), held.hold, who="ada")
    choices.stop(held.record(), held.hold, who="bob")
    # then the stop is one of the job
    assert held.record().refresh().stop == StopRequested(intent="abandon", who="bob")


def test_what_is_not_held_has_nothing_to_answer(held):
    choices.run_again(held.record(), who="ada")
    with pytest.raises(LineageError, match="not held"):
        choices.run_again(held.record(), who="ada")


def test_a_hold_that_is_about_to_expire_can_still_be_answered(held):
    # given that it was found over twice
    record = held.record()
    record.refresh()
    record.append(HoldLifted(hold=held.hold, lifted_by=LiftedBy.EXPIRY, resolution=Resolution.EXPIRE))
    assert isinstance(held.step(record), Finish)
    # when a person answers before the end is written
    choices.run_again(held.record(), held.hold, who="ada")
    # then it runs
    assert isinstance(held.step(held.record()), Submit)


def finish(held: HeldLineage, outcome: Outcome) -> Record:
    record = held.record()
    record.refresh()
    record.append(Finished(outcome=outcome))
    assert isinstance(held.step(record), Done)
    return record


@pytest.mark.parametrize("outcome", choices.REOPENABLE)
def test_what_is_reopened_is_held_at_once_and_in_the_index_again(held, outcome):
    finish(held, outcome)
    state = choices.reopen(held.record(), who="ada", note="a new try")
    assert state.hold is not None and "reopened by ada" in state.hold.opened.why
    assert (held.folder / ".dispatch" / "open" / "digits").exists()
    choices.run_again(held.record(), state.hold.opened.hold, who="ada")
    assert isinstance(held.step(held.record()), Submit)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in choices.REOPENABLE])
def test_after_other_ends_nothing_is_left_to_be_done(held, outcome):
    finish(held, outcome)
    with pytest.raises(LineageError, match="cannot be reopened"):
        choices.reopen(held.record(), who="ada")


def test_what_is_open_is_not_reopened_nor_twice(held):
    with pytest.raises(LineageError, match="not finished"):
        choices.reopen(held.record(), who="ada")
    finish(held, Outcome.HOLD_EXPIRED)
    choices.reopen(held.record(), who="ada")
    with pytest.raises(LineageError, match="not finished"):
        choices.reopen(held.record(), who="bob")


def test_who_dies_between_reopening_and_hold_leaves_the_hold_to_the_next_one(held):
    record = finish(held, Outcome.HOLD_EXPIRED)
    record.append(Reopened(who="ada"))
    assert isinstance(held.step(record).fact, HoldOpened)


def test_what_has_used_up_its_total_deadline_is_not_reopened(tmp_path):
    # given a job that was stopped half an hour before its deadline
    clock = ManualClock()
    record = open_record(str(tmp_path), "digits", clock)
    record.id()
    opening = plain_opening(root_visible=True, deadline={"budget": "1h", "count_queue": True})
    record.append(opening.model_copy(update={"root": str(tmp_path), "record_root": str(tmp_path)}))
    clock.turn(timedelta(minutes=30))
    record.append(Finished(outcome=Outcome.STOPPED))
    # when somebody wants to take it up an hour later
    clock.turn(timedelta(hours=1))
    # then
    with pytest.raises(LineageError, match=r"total deadline.*supersede"):
        choices.reopen(record, who="ada")
    assert record.refresh().finished is not None
    # and while there was time left, nothing spoke against it
    clock.step(-timedelta(hours=1))
    assert choices.reopen(record, who="ada").hold is not None
