"""The generations of a lineage: which job took the place of which, by whom, and what it went on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Entry, Finished, Opened, Outcome, Reopened


@dataclass(frozen=True, kw_only=True)
class GenerationRow:
    """One generation.

    Attributes:
        generation: which.
        parent: the generation whose place it took; None for the first one.
        opened_at: when it was opened.
        owner: who opened it.
        goes_on_from: what it goes on from until it has saves of its own, in words.
        outcome: how it ended; None while it has not.
        note: why it was opened, as whoever did so said.
    """

    generation: int
    parent: int | None
    opened_at: datetime
    owner: str
    goes_on_from: str
    outcome: Outcome | None
    note: str


def generations_of(entries: Sequence[Entry]) -> tuple[GenerationRow, ...]:
    """Put the generations of a record together, in order. One that came too late to be one is none."""
    opened: list[tuple[Entry, Opened]] = []
    outcomes: dict[int, Outcome | None] = {}
    for entry in entries:
        match entry.fact:
            case Opened() if not opened or entry.generation > opened[-1][0].generation:
                if opened:
                    outcomes.setdefault(opened[-1][0].generation, Outcome.SUPERSEDED)
                opened.append((entry, entry.fact))
            case Finished(outcome=outcome) if opened and entry.generation == opened[-1][0].generation:
                outcomes[entry.generation] = outcome
            case Reopened() if opened and entry.generation == opened[-1][0].generation:
                outcomes.pop(entry.generation, None)
            case _:
                pass
    return tuple(
        GenerationRow(
            generation=entry.generation,
            parent=opened[place - 1][0].generation if place else None,
            opened_at=entry.at,
            owner=fact.owner,
            goes_on_from=resume_words(fact.base, fact.floor, entry.generation),
            outcome=outcomes.get(entry.generation),
            note=fact.note,
        )
        for place, (entry, fact) in enumerate(opened)
    )


def resume_words(base: str, floor: int, generation: int) -> str:
    """What a generation goes on from before it has saves of its own, in words."""
    words = {"latest": "the newest save", "scratch": "scratch"}.get(base)
    if words is None:
        publication = Publication.parse(base)
        words = f"{publication.epoch} step {publication.step}"
    own = floor >= Epoch(generation, 1, 0).number
    return words if own or not floor else f"{words}, or what was saved since {Epoch.of(floor)}"
