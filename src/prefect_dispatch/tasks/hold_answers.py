"""A person's answer to a hold, from the form into the record."""

from __future__ import annotations

from collections.abc import Iterable

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.facts import Entry, HoldLifted, Resolution
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.hold_form import HoldAnswer

FROM_THE_UI = "the Prefect UI"


def who_answered(answer: HoldAnswer) -> str:
    """In whose name an answer stands in the record. Prefect does not tell who filled in a form."""
    return f"{answer.who}, in {FROM_THE_UI}" if answer.who else f"a person in {FROM_THE_UI}"


def is_applied(entries: Iterable[Entry], hold: str, answer: HoldAnswer) -> bool:
    """Whether a hold was lifted by this very answer already: who applied it may have been killed right behind that."""
    return any(
        isinstance(entry.fact, HoldLifted)
        and entry.fact.hold == hold
        and (entry.fact.resolution, entry.fact.who, entry.fact.note)
        == (answer.resolution, who_answered(answer), answer.note)
        for entry in entries
    )


def apply_answer(record: Record, hold: str, answer: HoldAnswer) -> str:
    """Apply an answer to exactly the hold that was asked about.

    Returns:
        What follows, in words.

    Raises:
        LineageError: that hold does not wait for an answer any more, or the save is not there; nothing was changed.
    """
    who, note, chosen = who_answered(answer), answer.note, answer.publication
    reach("prefect.answer")
    if chosen is not None:
        choices.continue_from(record, chosen.name, hold, who=who, note=note)
        return f"hold {hold} is lifted by {who}: continue from {chosen.epoch} step {chosen.step}"
    match answer.resolution:
        case Resolution.STOP:
            choices.stop(record, hold, who=who, note=note)
        case Resolution.FROM_SCRATCH:
            choices.from_scratch(record, hold, who=who, note=note)
        case _:
            choices.run_again(record, hold, who=who, note=note)
    return f"hold {hold} is lifted by {who}: {answer.resolution.replace('_', ' ')}"
