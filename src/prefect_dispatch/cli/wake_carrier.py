"""Waking the flow run that waits for a hold which a command has just lifted."""

from __future__ import annotations

import asyncio

from prefect_dispatch.cli.output import say
from prefect_dispatch.format.printable import printable
from prefect_dispatch.supervisor.record import Record


def wake_carrier(record: Record) -> int:
    """Have the flow run that carries a lineage go on, where Prefect can be asked; the record needs nothing more.

    Returns:
        0, whatever Prefect says: flow ``poll_cessation`` wakes the run too, and a process that waits sees the record.
    """
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        return 0
    from prefect_dispatch.tasks.resuming import Woken, resume_carrier

    try:
        woken = asyncio.run(resume_carrier(record))
    except Exception as error:
        text = printable(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        say(f"its flow run could not be woken ({text}); poll_cessation does it, or resume it in the UI")
        return 0
    if woken is Woken.RESUMED:
        say(f"flow run {record.known.carried_by} goes on")
    return 0
