"""``reconcile`` by a clock that is ahead, for what takes minutes of silence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from prefect.client.orchestration import get_client

from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.tasks.supervise_runs import read_live_runs
from support.deployed import DEPLOYMENT


class LaterClock(SystemClock):
    """The time in a quarter of an hour."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=15)


async def reconcile_later(operator: Any) -> tuple[list[str], list[str]]:
    """Look once at the lineages of a bench; what was done, and what could not be."""
    troubles: list[str] = []
    async with get_client() as client:
        work = Reconciling(client, f"supervise/{DEPLOYMENT}", LaterClock(), troubles)
        await work.add(str(operator.runs))
        await work.settle()
        await work.mark_silent([run for run in await read_live_runs(client) if _is_of(run, operator)])
    return work.told, troubles


def _is_of(run: Any, operator: Any) -> bool:
    return run.parameters.get("job", {}).get("lineage") == operator.lineage
