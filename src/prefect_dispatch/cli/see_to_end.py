"""Seeing to it that what a person asked of a job comes about, whether anybody else carries it or not."""

from __future__ import annotations

import asyncio

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.wake_carrier import wake_carrier
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.advance import Advanced
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, drive
from prefect_dispatch.supervisor.record import Record


def see_to_end(record: Record, state: LineageState) -> LineageState:
    """Advance a lineage until it is over or held, whoever else carries it, and tell what that came to."""
    after = asyncio.run(_drive(record, state))
    if after.finished is not None:
        say(f"lineage {record.lineage} is {after.finished.outcome}: {printable(after.finished.detail)}")
    elif after.hold is not None:
        hold = after.hold.opened
        say(f"lineage {record.lineage} is held by {hold.hold}: {printable(hold.why)}")
        say(f"to go on: prefect-dispatch resume {record.lineage} --run-again")
        say("if nobody carries it any more, submit its job again too")
    wake_carrier(record)
    return after


async def _drive(record: Record, state: LineageState) -> LineageState:
    supervisor = supervisor_of(record, state, SystemClock())
    told: set[str] = set()

    async def after_each(advanced: Advanced) -> None:
        if advanced.trouble and advanced.trouble not in told:
            told.add(advanced.trouble)
            say(printable(advanced.trouble))

    while isinstance(happening := await drive(supervisor, carrier=None, after_each=after_each), ExecutionOver):
        pass
    return happening.state
