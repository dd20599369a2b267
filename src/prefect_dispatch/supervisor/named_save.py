"""A save that a person names: whether it is published, and whole."""

from __future__ import annotations

from prefect_dispatch.errors import LineageError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.verdict import Finding
from prefect_dispatch.supervisor.root_view import RootView


def require_published(lineage: str, view: RootView | None, name: str) -> Publication:
    """Find out that a save is published.

    Args:
        lineage: the lineage's name.
        view: its root; None where this process cannot see it.
        name: the save, by its path below the root or by its full name.

    Returns:
        The publication.

    Raises:
        LineageError: it is not, or the path was published more than once, or this process cannot see whether it is.
    """
    known = view.publications() if view is not None else None
    if known is None:
        why = "; ".join(view.faults) if view is not None and view.faults else "its root cannot be seen"
        raise LineageError(f"whether {name!r} is published cannot be told from here: {why}")
    meant = [each for each in known if name in (each.name, each.path)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        names = ", ".join(each.name for each in meant)
        raise LineageError(f"{name!r} was published {len(meant)} times; name one of them in full: {names}")
    raise LineageError(
        f"{name!r} is not published in the root of {lineage!r}; name a save by its path, or in full, as dispatch-job "
        "list prints them"
    )


def require_whole(lineage: str, view: RootView | None, name: str, below: Epoch) -> Publication:
    """Find out that a save is published and that what is there of it is what its manifest lists.

    Args:
        lineage: the lineage's name.
        view: its root; None where this process cannot see it.
        name: the save, by its path below the root or by its full name.
        below: the first epoch that is to go on from it.

    Returns:
        The publication.

    Raises:
        LineageError: it is not, or the path was published more than once, or this process cannot see whether it is.
    """
    publication = require_published(lineage, view, name)
    verdict = view.verdict(publication, below) if view is not None else None
    if verdict is None:
        faults = view.faults if view is not None else ()
        raise LineageError(f"whether {name} is whole cannot be told from here: {'; '.join(faults)}")
    if verdict.finding is not Finding.WHOLE:
        raise LineageError(
            f"{name} is {verdict.finding.value}: {verdict.why}; choose another one, see dispatch-job list"
        )
    return publication
