"""The oracle: what an execution may resume from, worked out from what was published and whole, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from prefect_dispatch.format.resume_choice import LATEST, SCRATCH
from prefect_dispatch.testing.simulator.truth import Published


def wrong_resume(
    published: Iterable[Published], epoch: int, base: str, floor: int, chosen: str | None, began: int, ended: int
) -> str | None:
    """Say why a choice of what to resume from is wrong; None where it is right at some moment while it was made.

    Args:
        published: all publications, of whomever.
        epoch: the epoch of the execution that chose.
        base: its base, as the record has it.
        floor: its floor, as the record has it.
        chosen: the name of the publication that was taken; None for a start from scratch.
        began: the moment at which the choice began.
        ended: the moment at which it was written down.
    """
    mine = [each for each in published if each.publication.epoch.number < epoch and each.at <= ended]
    # Whether the floor's publications decide may change while the choice is made; then either is right.
    above = [each for each in mine if each.publication.epoch.number >= floor]
    faults: list[str] = []
    if above:
        faults.append(_wrong_among(above, chosen, began, ended) or "")
    if not any(each.at <= began for each in above):
        faults.append(_wrong_for_base(mine, base, chosen, began, ended) or "")
    return None if "" in faults else " and ".join(faults)


def _wrong_for_base(mine: list[Published], base: str, chosen: str | None, began: int, ended: int) -> str | None:
    if base == LATEST:
        if any(each.at <= began for each in mine):
            return _wrong_among(mine, chosen, began, ended)
        return None if chosen is None else _wrong_among(mine, chosen, began, ended)
    expected = None if base == SCRATCH else base
    return None if chosen == expected else f"{base} was to be taken, and {chosen or 'nothing'} was"


def _wrong_among(candidates: list[Published], chosen: str | None, began: int, ended: int) -> str | None:
    """The greatest that was whole all the time is the least that may be taken."""
    if chosen is None:
        return None if not any(each.at <= began for each in candidates) else "it starts from scratch over saves"
    taken = next((each for each in candidates if each.publication.name == chosen), None)
    if taken is None:
        return f"{chosen} was not published, or may not be taken"
    if taken.lost_at is not None and taken.lost_at <= began:
        return f"{chosen} was not whole any more"
    for other in candidates:
        there = other.at <= began and (other.lost_at is None or other.lost_at > ended)
        if there and _rank(other) > _rank(taken):
            return f"{chosen} was taken although {other.publication.name} is greater, published and whole"
    return None


def _rank(published: Published) -> tuple[int, int, bytes]:
    """Epoch, then step, then path, as the design has it and not as the product sorts."""
    publication = published.publication
    epoch = publication.epoch
    number = epoch.generation * 10**12 + epoch.submission * 10**6 + epoch.restart
    return number, publication.step, publication.path.encode()
