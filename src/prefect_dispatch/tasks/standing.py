"""Whether somebody carries a lineage, from its record, its flow run and the signs of life of its process."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from prefect.client.schemas.objects import FlowRun

from prefect_dispatch.supervisor.beats import DEAD_AFTER, UNVOUCHED_AFTER
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
        beat: when its process last gave a sign of life, or somebody for it; None for never, or not any more.
        touched: when the last fact was recorded.
        held: whether it waits for a person.
    """

    carrier: Carrier | None
    run: FlowRun | None
    beat: datetime | None
    touched: datetime
    held: bool = False


def standing_of(signs: Signs, now: datetime) -> Standing:
    """How a lineage stands.

    A run that is over, and asks for nothing, has lost its lineage. One that goes on may have lost its process, and one
    that Prefect does not know may be a process of another server, or of none: of these the signs of life tell. One
    that may wait at another server has no process, and whoever looks there gives its signs more seldom.
    """
    run, state = signs.run, signs.run.state if signs.run is not None else None
    if signs.carrier is None:
        return _by_signs(signs, signs.touched, now)
    if run is None or state is None:
        patience = UNVOUCHED_AFTER if signs.held else DEAD_AFTER
        return _by_signs(signs, max(signs.carrier.at, signs.touched), now, patience)
    if wish_of(state) is not None:
        return Standing.WISHED
    if state.is_final():
        return Standing.LOST
    if state.is_scheduled():
        return Standing.CARRIED
    if needs_no_process(run):
        return Standing.WAITS
    return _by_signs(signs, state.timestamp, now)


def is_silent(run: FlowRun, beat: datetime | None, now: datetime) -> bool:
    """Whether a run that should have a process has given no sign of life for long."""
    state = run.state
    if state is None or state.is_final() or needs_no_process(run):
        return False
    return now - max(state.timestamp, beat or state.timestamp) > DEAD_AFTER


def needs_no_process(run: FlowRun) -> bool:
    """Whether a run waits for a person or a worker, so that nothing of it need live meanwhile."""
    state = run.state
    suspended = state is not None and state.is_paused() and bool(state.state_details.pause_reschedule)
    return suspended or (state is not None and state.is_scheduled())


def _by_signs(signs: Signs, since: datetime, now: datetime, patience: timedelta = DEAD_AFTER) -> Standing:
    return Standing.LOST if now - max(since, signs.beat or since) > patience else Standing.CARRIED
