"""Whether somebody carries a lineage, from its record, its flow run and the signs of life of its process."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from prefect.client.schemas.objects import FlowRun

from prefect_dispatch.supervisor.beats import DEAD_AFTER
from prefect_dispatch.supervisor.carriers import Carrier
from prefect_dispatch.tasks.wishes import wish_of


class Standing(enum.StrEnum):
    """How a lineage stands."""

    CARRIED = "carried"
    """Somebody carries it, or will once a worker has time."""
    WAITS = "waits"
    """Its run is suspended: it waits for a person, and needs no process."""
    WISHED = "wished"
    """A person has cancelled or suspended its run."""
    LOST = "lost"
    """Nobody carries it, and nobody will."""


@dataclass(frozen=True)
class Signs:
    """What there is to tell it by.

    Attributes:
        carrier: who carries the lineage, as its record says; None for nobody.
        run: its flow run; None where Prefect knows none of that id.
        beat: when its process last gave a sign of life; None for never, or not any more.
        touched: when the last fact was recorded.
    """

    carrier: Carrier | None
    run: FlowRun | None
    beat: datetime | None
    touched: datetime


def standing_of(signs: Signs, now: datetime) -> Standing:
    """How a lineage stands.

    A run that is over, and asks for nothing, has lost its lineage. One that goes on may have lost its process, and one
    that Prefect does not know may be a process of another server, or of none: of these the signs of life tell.
    """
    run, state = signs.run, signs.run.state if signs.run is not None else None
    if signs.carrier is None or run is None or state is None:
        return _by_signs(signs, signs.touched if signs.carrier is None else signs.carrier.at, now)
    if wish_of(state) is not None:
        return Standing.WISHED
    if state.is_final():
        return Standing.LOST
    if state.is_scheduled():
        return Standing.CARRIED
    if state.is_paused() and state.state_details.pause_reschedule:
        return Standing.WAITS
    return _by_signs(signs, state.timestamp, now)


def is_silent(run: FlowRun, beat: datetime | None, now: datetime) -> bool:
    """Whether a run that should have a process has given no sign of life for long."""
    state = run.state
    if state is None or state.is_final() or state.is_scheduled():
        return False
    if state.is_paused() and state.state_details.pause_reschedule:
        return False
    return now - max(state.timestamp, beat or state.timestamp) > DEAD_AFTER


def _by_signs(signs: Signs, since: datetime, now: datetime) -> Standing:
    return Standing.LOST if now - max(since, signs.beat or since) > DEAD_AFTER else Standing.CARRIED
