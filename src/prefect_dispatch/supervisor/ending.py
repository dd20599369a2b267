"""Seeing a lineage through what a person asked for, for a while: to its end, or to the hold after a suspension."""

from __future__ import annotations

import asyncio

from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record


async def see_to_it(record: Record, clock: Clock, most_seconds: float) -> LineageState:
    """Advance a lineage that is asked to stop or to save and wait, until it has, or the time is over.

    Any number may do so at once, and each may be killed: whoever comes next goes on.

    Raises:
        DispatchError: its record cannot be read or written, or its scheduler is not one of this version.
    """
    state = await asyncio.to_thread(record.refresh)
    if state.stop is None:
        return state
    supervisor = await asyncio.to_thread(supervisor_of, record, state, clock)
    give_up = clock.monotonic() + most_seconds
    while clock.monotonic() < give_up:
        advanced = await supervisor.advance()
        state = advanced.state
        if state.stop is None or state.finished is not None or (state.hold is not None and not advanced.moved):
            break
        if not advanced.moved:
            await clock.sleep(supervisor.capabilities.poll_interval.total_seconds())
    return state
