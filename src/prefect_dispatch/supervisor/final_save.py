"""The save that a generation ended with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import owner_of
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.stores.verdict import Judge
from prefect_dispatch.supervisor.root_look import RootLook

MOST_FORGED = 1000
"""Publications that no execution can have made which the look for a final save passes over."""


@dataclass(frozen=True)
class FinalSave:
    """The save that a generation ended with.

    Attributes:
        publication: its name.
        produced_by: the attempt that published it.
        resumed_from: what that attempt had resumed from; None for a start from scratch.
    """

    publication: str
    produced_by: str
    resumed_from: str | None


def find_final_save(
    look: RootLook, own: Sequence[Publication], pin_of: Callable[[str], Pin | None]
) -> FinalSave | None:
    """Find the newest publication of a generation, and what the execution behind it had resumed from.

    A name that its execution cannot have made is none, as when a resume point is chosen.

    Args:
        look: asks the root.
        own: the generation's publications, in order.
        pin_of: what an attempt has decided to resume from.
    """
    judge = Judge(look.root.store)
    for publication in own[: -MOST_FORGED - 1 : -1]:
        if look.ask(lambda: judge.judge_origin(publication)) is not None:  # noqa: B023
            continue
        attempt = owner_of(publication.path) or ""
        pin = pin_of(attempt)
        source = pin.publication if pin is not None else None
        return FinalSave(publication.name, attempt, source.name if source is not None else None)
    return None
