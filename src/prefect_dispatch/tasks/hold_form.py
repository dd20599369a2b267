"""The form on which a person answers a hold, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prefect.input import RunInput
from pydantic import Field, create_model

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.printable import printable, shorten
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Resolution

RUN_AGAIN = "run again"
STOP = "stop the job"
SCRATCH = "start from scratch"
CONTINUE = "continue from "
MOST_SAVES = 50
"""How many saves the form offers, the newest. Older ones can be named on the command line."""
MOST_NOTE = 1000
MOST_NAME = 100
_CHOICES = (
    "Run again: from the newest save. Continue from: from that save, without the later ones. Start from scratch: "
    "without any save."
)
"""Short, as is the rest of the form: in a low window the UI takes its room from the page above, which then scrolls."""
_WORDS = {RUN_AGAIN: Resolution.RUN_AGAIN, STOP: Resolution.STOP, SCRATCH: Resolution.FROM_SCRATCH}


@dataclass(frozen=True)
class HoldAnswer:
    """What a person chose.

    Attributes:
        resolution: what is to happen.
        publication: the save to go on from, where that is it.
        who: the person's name, as they gave it.
        note: why, for the record.
    """

    resolution: Resolution
    publication: Publication | None = None
    who: str = ""
    note: str = ""


def form_of(publications: Sequence[Publication], hold: str) -> type[RunInput]:
    """The form of a hold. The choice has no default: an answer without one is refused by the server.

    Every way on is one entry of one list, so that no combination of fields can contradict itself. The form names its
    hold in a field that the UI sends along, so the server refuses one that was opened for another hold than that which
    the run is asked about by now.

    Args:
        publications: the saves that can be gone on from, newest first.
        hold: the hold's id.
    """
    saves, about = _labels(publications[:MOST_SAVES]), about_of(hold)
    choices: Any = Literal[(RUN_AGAIN, *saves, SCRATCH, STOP)]
    own: Any = Literal[(about,)]
    form: type[RunInput] = create_model(
        "HoldAnswer",
        __base__=RunInput,
        choice=(
            choices,
            Field(
                title="What is to happen",
                description=_CHOICES,
            ),
        ),
        note=(str, Field(default="", title="Note for the record", max_length=MOST_NOTE)),
        name=(str, Field(default="", title="Your name, for the record", max_length=MOST_NAME)),
        about=(
            own,
            Field(
                default=about,
                title="What is answered",
                description="Where this is refused, another hold is open by now than the one that you saw: look again.",
            ),
        ),
    )
    return form


def about_of(hold: str) -> str:
    """What a form says that it is about: whoever answers another one's is told this."""
    return f"hold {hold}"


def read_answer(values: Mapping[str, Any], publications: Sequence[Publication], hold: str) -> HoldAnswer:
    """Read what a person has filled in. The saves may be others than they were when the form was made.

    Args:
        values: the fields.
        publications: the saves that are there now.
        hold: the hold that was asked about.

    Raises:
        UsageError: the choice is none, the save that it names is not there any more, or the form was another hold's;
            the text says so.
    """
    choice, about = values.get("choice"), values.get("about", about_of(hold))
    if about != about_of(hold):
        raise UsageError(f"the form was about {shorten(about)}, and asked was about {about_of(hold)}")
    who, note = _line(values.get("name"), MOST_NAME), _line(values.get("note"), MOST_NOTE)
    if isinstance(choice, str):
        if choice in _WORDS:
            return HoldAnswer(_WORDS[choice], None, who, note)
        chosen = _labels(publications).get(choice)
        if chosen is not None:
            return HoldAnswer(Resolution.CONTINUE_FROM, chosen, who, note)
        if choice.startswith(CONTINUE):
            raise UsageError(f"{printable(choice, MOST_NAME)} is not possible: that save is not published any more")
    raise UsageError(f"{shorten(choice)} is no answer; choose one of the form")


def _labels(publications: Sequence[Publication]) -> dict[str, Publication]:
    """The saves by the words that name each; where two have one epoch and step, by their paths too."""
    counted: dict[str, int] = {}
    for each in publications:
        counted[_label(each)] = counted.get(_label(each), 0) + 1
    return {
        _label(each) if counted[_label(each)] == 1 else f"{_label(each)}, {printable(each.path)}": each
        for each in publications
    }


def _label(publication: Publication) -> str:
    return f"{CONTINUE}{publication.epoch} step {publication.step}"


def _line(value: object, most: int) -> str:
    return printable(value, most) if isinstance(value, str) else ""
