"""A person's answer to a hold, from the form into the record."""

from __future__ import annotations

from collections.abc import Iterable

from prefect_dispatch.errors import Exists, LineageError
from prefect_dispatch.format.resume_choice import SCRATCH
from prefect_dispatch.model.facts import Entry, HoldLifted, LiftedBy, Resolution
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
        LineageError: the hold is not open any more; nothing was changed.
    """
    base = answer.publication.name if answer.publication is not None else None
    if answer.resolution is Resolution.FROM_SCRATCH:
        base = SCRATCH
    while True:
        state = record.refresh()
        if state.hold is None or state.hold.opened.hold != hold:
            raise LineageError(f"hold {hold} is not open any more")
        try:
            record.append(
                HoldLifted(
                    hold=hold,
                    lifted_by=LiftedBy.PERSON,
                    resolution=answer.resolution,
                    base=base,
                    who=who_answered(answer),
                    note=answer.note,
                )
            )
        except Exists:
            continue
        return f"hold {hold} is lifted: {answer.resolution.replace('_', ' ')}"
