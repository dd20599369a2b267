"""Who carries a lineage, as its record tells it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.model.facts import CarriedBy, Entry, Opened, Reopened


@dataclass(frozen=True)
class Carrier:
    """The flow run, or process, that carries a lineage.

    Attributes:
        flow_run: its id, or a name as :func:`process_carrier` gives it.
        at: since when.
    """

    flow_run: str
    at: datetime


def process_carrier() -> str:
    """A name for this process where it carries a lineage outside of any flow run; another one with each call.

    Its number is for people. Processes of two hosts, or of two containers of one, may have the same.
    """
    return f"process-{os.getpid()}-{new_nonce()}"


def carrier_of(entries: Sequence[Entry]) -> Carrier | None:
    """Who carries the present generation since it was last opened or reopened; None where nobody has begun to.

    What carried an earlier generation, or the job before its end was taken back, carries nothing any more: what becomes
    of its flow run is no word about this one.
    """
    present = max((each.generation for each in entries if isinstance(each.fact, Opened)), default=0)
    for entry in reversed(entries):
        if entry.generation != present:
            continue
        match entry.fact:
            case CarriedBy(flow_run=run):
                return Carrier(run, entry.at)
            case Opened(request=run):
                return Carrier(run, entry.at) if run else None
            case Reopened():
                return None
    return None


def carried_generation(entries: Sequence[Entry], run: str) -> int | None:
    """The last generation that a run carried, or opened and is to carry; None where there is none."""
    found = (entry.generation for entry in entries if run in _runs_of(entry))
    return max(found, default=None)


def settled_at(entries: Sequence[Entry]) -> int:
    """The place of the last fact that is more than somebody's taking over; 0 for none."""
    return next((each.seq for each in reversed(entries) if not isinstance(each.fact, CarriedBy)), 0)


def taken_at(entries: Sequence[Entry]) -> int:
    """The place of the last fact by which somebody carries the present generation, or nobody any more; 0 for none."""
    present = max((each.generation for each in entries if isinstance(each.fact, Opened)), default=0)
    hands = (each.seq for each in reversed(entries) if isinstance(each.fact, CarriedBy | Opened | Reopened))
    own = {each.seq for each in entries if each.generation == present}
    return next((seq for seq in hands if seq in own), 0)


def _runs_of(entry: Entry) -> tuple[str, ...]:
    match entry.fact:
        case CarriedBy(flow_run=run):
            return (run,)
        case Opened(request=request) if request:
            return (request,)
        case _:
            return ()
