"""``reconcile`` by a clock that is ahead, for what takes minutes of silence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from prefect.client.orchestration import get_client

from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.reconciling import ONE_MORE_SECONDS, Reconciling
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.tasks.supervise_runs import read_live_runs
from support.deployed import DEPLOYMENT


class LaterClock(SystemClock):
    """The time in a while, for who does not wait.

    Args:
        waits: what happens while one more sign of life is waited for.
        ahead: how much later it is.
    """

    def __init__(self, waits: Callable[[], None] = lambda: None, ahead: timedelta = timedelta(minutes=15)) -> None:
        super().__init__()
        self._waits = waits
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead

    async def sleep(self, seconds: float) -> None:
        if seconds == ONE_MORE_SECONDS:
            self._waits()
        else:
            await super().sleep(seconds)


async def reconcile_later(operator: Any, waits: Callable[[], None] = lambda: None) -> tuple[list[str], list[str]]:
    """Look once at the lineages of a bench; what was done, and what could not be."""
    report = PollReport()
    async with get_client() as client:
        # As the flow does, first: a run that is adopted now has given no sign for as long as the clock is ahead.
        live = [run for run in await read_live_runs(client) if _is_of(run, operator)]
        work = Reconciling(client, f"supervise/{DEPLOYMENT}", LaterClock(waits), report)
        await work.add(str(operator.runs))
        await work.settle()
        await work.end_waiting(live)
        await work.mark_silent(live)
    return report.told, report.troubles


def _is_of(run: Any, operator: Any) -> bool:
    job = run.parameters.get("job")  # Of other people's flows of that name, whatever they call so.
    return isinstance(job, dict) and job.get("lineage") == operator.lineage
