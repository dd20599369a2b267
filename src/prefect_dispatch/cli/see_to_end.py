"""Seeing to it that what a person asked of jobs comes about, whether anybody else carries them or not."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.wake_carrier import wake_carrier
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import Poll
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, JobSuperseded, drive
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.stopping import notice_for
from prefect_dispatch.supervisor.trouble import Trouble

HELD = 75
"""Exit code where a person is asked what became of it: try again later, in the words of BSD's sysexits.h."""
TELL_EVERY = timedelta(seconds=10)
"""How often a person who waits is told so."""


def see_to_end(asked: Sequence[tuple[Record, LineageState]]) -> int:
    """Advance lineages side by side until each is over or held, whoever else carries it, and tell what that came to.

    Returns:
        The exit code: that of what went wrong with one of them, 1 where another generation goes on instead, 75 where
        nobody can tell whether it has ended and a person is asked, else 0. Of several the greatest.
    """
    code = 0
    for (record, asked_of), result in zip(asked, asyncio.run(_drive_all(asked)), strict=True):
        if isinstance(result, DispatchError):
            print(f"prefect-dispatch: {printable(str(result))}", file=sys.stderr)
            code = max(code, int(result.exit_code))
        elif isinstance(result, BaseException):
            raise result
        elif isinstance(result, JobSuperseded):
            old, new = asked_of.generation, result.state.generation
            text = (
                f"lineage {record.lineage}: what was asked did not come about: generation {old} was superseded "
                f"meanwhile, and generation {new}, of which nothing was asked, goes on; ask again if that one is meant"
            )
            print(f"prefect-dispatch: {text}", file=sys.stderr)
            code = max(code, 1)
        else:
            _tell(record, result)
            if result.hold is not None and result.hold.opened.is_unaccounted:
                code = max(code, HELD)
            wake_carrier(record)
    return code


class Waiting:
    """Tells a person what is being waited for, when it begins and then every while.

    Args:
        supervisor: what advances the lineage.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._why = ""
        self._since = self._told = 0.0

    def note(self, advanced: Advanced) -> None:
        """Take what an advance came to."""
        now, why = self._supervisor.clock.monotonic(), advanced.step.why if isinstance(advanced.step, Poll) else ""
        if why != self._why:
            self._why, self._since = why, now
            if why:
                self._tell(f"waits for {why}{_time_to_save(advanced.state)}", now)
        elif why and now - self._told >= TELL_EVERY.total_seconds():
            self._tell(f"still waits for {why}, after {now - self._since:.0f}s", now)

    def _tell(self, text: str, now: float) -> None:
        say(f"{self._supervisor.lineage}: {text}")
        self._told = now


def _time_to_save(state: LineageState) -> str:
    notice = notice_for(state, state.newest) if state.newest is not None else None
    return "" if notice is None else f"; its program has {describe_duration(notice.period)} to save and exit"


async def _drive_all(
    asked: Sequence[tuple[Record, LineageState]],
) -> list[LineageState | JobSuperseded | BaseException]:
    return await asyncio.gather(*(_drive(record, state) for record, state in asked), return_exceptions=True)


async def _drive(record: Record, state: LineageState) -> LineageState | JobSuperseded:
    supervisor = supervisor_of(record, state, SystemClock())
    trouble, waiting = Trouble(record.lineage), Waiting(supervisor)

    async def after_each(advanced: Advanced) -> None:
        trouble.note(advanced.trouble, say)
        waiting.note(advanced)

    while isinstance(happening := await drive(supervisor, carrier=None, after_each=after_each), ExecutionOver):
        pass
    return happening if isinstance(happening, JobSuperseded) else happening.state


def _tell(record: Record, state: LineageState) -> None:
    if state.finished is not None:
        say(f"lineage {record.lineage} is {state.finished.outcome}: {state.finished.detail}")
    elif state.hold is not None:
        hold = state.hold.opened
        say(f"lineage {record.lineage} is held by {hold.hold}: {hold.why}")
        stopping = state.stop is not None and state.stop.intent == "abandon"
        wish, answer = ("to end it", "--stop") if stopping else ("to go on", "--run-again")
        store = f" --store {shlex.quote(state.opened.record_root)}" if state.opened is not None else ""
        say(f"{wish}: prefect-dispatch resume {record.lineage}{store} --hold {hold.hold} {answer}")
        say("if nobody carries it any more, submit its job again too")
