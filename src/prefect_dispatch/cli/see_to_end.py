"""Seeing to it that what a person asked of jobs comes about, whether anybody else carries them or not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.wake_carrier import wake_carrier
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.advance import Advanced
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, drive
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.trouble import Trouble


def see_to_end(asked: Sequence[tuple[Record, LineageState]]) -> int:
    """Advance lineages side by side until each is over or held, whoever else carries it, and tell what that came to.

    Returns:
        The exit code: that of what went wrong with one of them, else 0.
    """
    code = 0
    for (record, _), result in zip(asked, asyncio.run(_drive_all(asked)), strict=True):
        if isinstance(result, DispatchError):
            print(f"prefect-dispatch: {printable(str(result))}", file=sys.stderr)
            code = max(code, int(result.exit_code))
        elif isinstance(result, BaseException):
            raise result
        else:
            _tell(record, result)
            wake_carrier(record)
    return code


async def _drive_all(asked: Sequence[tuple[Record, LineageState]]) -> list[LineageState | BaseException]:
    return await asyncio.gather(*(_drive(record, state) for record, state in asked), return_exceptions=True)


async def _drive(record: Record, state: LineageState) -> LineageState:
    supervisor = supervisor_of(record, state, SystemClock())
    trouble = Trouble(record.lineage)

    async def after_each(advanced: Advanced) -> None:
        trouble.note(advanced.trouble, say)

    while isinstance(happening := await drive(supervisor, carrier=None, after_each=after_each), ExecutionOver):
        pass
    return happening.state


def _tell(record: Record, state: LineageState) -> None:
    if state.finished is not None:
        say(f"lineage {record.lineage} is {state.finished.outcome}: {state.finished.detail}")
    elif state.hold is not None:
        hold = state.hold.opened
        say(f"lineage {record.lineage} is held by {hold.hold}: {hold.why}")
        say(f"to go on: prefect-dispatch resume {record.lineage} --hold {hold.hold} --run-again")
        say("if nobody carries it any more, submit its job again too")
