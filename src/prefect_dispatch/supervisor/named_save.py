"""A save that a person names: whether it is published, and whole."""

from __future__ import annotations

from prefect_dispatch.errors import LineageError, MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.verdict import Finding
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.root_view import RootView


def require_published(lineage: str, state: LineageState, name: str) -> None:
    """Find out that a save is published.

    Raises:
        LineageError: it is not, or this process cannot see whether it is.
    """
    _find(lineage, state, name)


def require_whole(lineage: str, state: LineageState, name: str, below: Epoch) -> None:
    """Find out that a save is published and that what is there of it is what its manifest lists.

    Args:
        lineage: the lineage's name.
        state: its present state.
        name: the save's full name.
        below: the first epoch that is to go on from it.

    Raises:
        LineageError: it is not, or this process cannot see whether it is.
    """
    publication, view = _find(lineage, state, name)
    verdict = view.verdict(publication, below)
    if verdict is None:
        raise LineageError(f"whether {name} is whole cannot be told from here: {'; '.join(view.faults)}")
    if verdict.finding is not Finding.WHOLE:
        raise LineageError(
            f"{name} is {verdict.finding.value}: {verdict.why}; choose another one, see dispatch-job list"
        )


def _find(lineage: str, state: LineageState, name: str) -> tuple[Publication, RootView]:
    try:
        publication = Publication.parse(name)
    except MalformedName as error:
        raise LineageError(f"{error}; give a name as dispatch-job list prints it") from None
    view = root_view_of(lineage, state)
    known = view.publications() if view is not None else None
    if view is None or known is None:
        root = state.opened.root if state.opened is not None else "its root"
        why = "; ".join(view.faults) if view is not None and view.faults else f"{root} cannot be seen"
        raise LineageError(f"whether {name} is published cannot be told from here: {why}")
    if publication not in known:
        raise LineageError(f"{name} is not published in the root of {lineage!r}; see dispatch-job list")
    return publication, view
