"""Who carries a lineage, as its record tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.model.facts import CarriedBy, Entry, Opened, Reopened


@dataclass(frozen=True)
class Carrier:
    """The flow run, or process, that carries a lineage.

    Attributes:
        flow_run: its id, or ``process-PID``.
        at: since when.
    """

    flow_run: str
    at: datetime


def carrier_of(entries: Sequence[Entry]) -> Carrier | None:
    """Who carries the present generation since it was last opened or reopened; None where nobody has begun to.

    What carried an earlier generation, or the job before its end was taken back, carries nothing any more: what becomes
    of its flow run is no word about this one.
    """
    generation = max((each.generation for each in entries if isinstance(each.fact, Opened)), default=0)
    for entry in reversed(entries):
        if isinstance(entry.fact, Opened | Reopened):
            return None
        if isinstance(entry.fact, CarriedBy) and entry.generation == generation:
            return Carrier(entry.fact.flow_run, entry.at)
    return None


def has_carried(entries: Sequence[Entry], carrier: str) -> bool:
    """Whether a flow run has ever carried the lineage."""
    return any(isinstance(each.fact, CarriedBy) and each.fact.flow_run == carrier for each in entries)


def settled_at(entries: Sequence[Entry]) -> int:
    """The place of the last fact that is more than somebody's taking over; 0 for none."""
    return next((each.seq for each in reversed(entries) if not isinstance(each.fact, CarriedBy)), 0)
