"""The names of the states in which runs and tasks end where Prefect's own, such as Completed, would say too little."""

from __future__ import annotations

import enum


class EndState(enum.StrEnum):
    """How a run or task ended that neither completed nor just failed. People filter by these in the UI."""

    STOPPED = "Stopped"
    """A person has ended the job."""
    HELD = "Held"
    """A person must decide, and this run does not wait for them."""
    HANDED_OVER = "HandedOver"
    """Another run carries the lineage."""
    SUPERSEDED = "Superseded"
    """A newer generation took the place of this run's."""
    REFUSED = "Refused"
    """It asked for what is not possible as things are; nothing was changed."""
