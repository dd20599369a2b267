"""Waking the flow run that waits for a hold which a command has just lifted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.standing_up import running_up
from prefect_dispatch.format.printable import printable
from prefect_dispatch.supervisor.record import Record

T = TypeVar("T")


def wake_carrier(record: Record) -> None:
    """Have the flow run that carries a lineage go on, where Prefect can be asked; the record needs nothing more.

    Whatever Prefect says is no failure: flow ``poll_cessation`` wakes the run too, and a process that waits sees the
    record.
    """
    failed = f"the flow run of {record.lineage} could not be woken"
    woken = _ask(lambda: _resuming().resume_carrier(record), failed, "resume it in the UI")
    if woken is not None and woken is _resuming().Woken.RESUMED:
        say(f"flow run {record.known.carried_by} is resumed")


def retire_carriers(record: Record) -> None:
    """End the flow runs that wait with a question about a generation that was just superseded, as above."""
    failed = f"the flow run of {record.lineage} could not be ended"
    for run in _ask(lambda: _resuming().end_superseded(record), failed, "cancel it") or ():
        say(f"flow run {run} waits no more: its job was superseded")


def _resuming() -> Any:
    from prefect_dispatch.tasks import resuming

    return resuming


def _ask(question: Callable[[], Coroutine[Any, Any, T]], failed: str, instead: str) -> T | None:
    """Ask Prefect, where there is a server to be asked."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    standing = running_up()
    url = PREFECT_API_URL.value() or (standing.url if standing is not None else None)
    if not url:
        return None
    try:
        with temporary_settings({PREFECT_API_URL: url}):
            return asyncio.run(question())
    except Exception as error:
        text = printable(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        say(f"{failed} ({text}); poll_cessation does it, or {instead}")
        return None
