"""What a supervisor works with: one lineage's record and root, its scheduler, and a clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from prefect_dispatch.model.facts import Fact
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.root_view import RootView


@dataclass(frozen=True)
class Access:
    """One process's access to one lineage.

    Attributes:
        record: the lineage's record.
        scheduler: the scheduler that its objects live in.
        root: the lineage's checkpoint root; None where this process cannot reach it.
        clock: the clock.
        reports: what helpers left beside the record, for where the root cannot tell.
    """

    record: Record
    scheduler: Scheduler
    root: RootView | None
    clock: Clock
    reports: ReportsView | None = None

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return self.record.lineage

    async def refresh(self) -> LineageState:
        """Read the record on and fold it."""
        return await asyncio.to_thread(self.record.refresh)

    async def append(self, fact: Fact, generation: int | None = None) -> LineageState:
        """Append a fact behind what was read, or raise :class:`Exists`: then what was read counts no more."""
        return await asyncio.to_thread(self.record.append, fact, generation)
