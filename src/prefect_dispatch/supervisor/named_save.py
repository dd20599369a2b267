"""A save that a person names: whether it is published, and whole."""

from __future__ import annotations

from prefect_dispatch.errors import LineageError, MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.verdict import Finding
from prefect_dispatch.supervisor.root_view import RootView


def require_published(lineage: str, view: RootView | None, name: str) -> Publication:
    """Find out that a save is published.

    Args:
        lineage: the lineage's name.
        view: its root; None where this process cannot see it.
        name: the save's full name.

    Raises:
        LineageError: it is not, or this process cannot see whether it is.
    """
    try:
        publication = Publication.parse(name)
    except MalformedName as error:
        raise LineageError(f"{error}; give a name as dispatch-job list prints it") from None
    known = view.publications() if view is not None else None
    if known is None:
        why = "; ".join(view.faults) if view is not None and view.faults else "its root cannot be seen"
        raise LineageError(f"whether {name} is published cannot be told from here: {why}")
    if publication not in known:
        raise LineageError(f"{name} is not published in the root of {lineage!r}; see dispatch-job list")
    return publication


def require_whole(lineage: str, view: RootView | None, name: str, below: Epoch) -> None:
    """Find out that a save is published and that what is there of it is what its manifest lists.

    Args:
        lineage: the lineage's name.
        view: its root; None where this process cannot see it.
        name: the save's full name.
        below: the first epoch that is to go on from it.

    Raises:
        LineageError: it is not, or this process cannot see whether it is.
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
