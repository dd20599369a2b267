"""What people look at in the Prefect UI: plan, tries, lineage table and timeline, as artifacts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.pictures.execution_page import as_words, execution_page
from prefect_dispatch.pictures.history import ExecutionRow, history_of
from prefect_dispatch.pictures.tables import identity_table, plan_table, table_row
from prefect_dispatch.pictures.timeline import draw_timeline
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.log_file import tail_of
from prefect_dispatch.supervisor.record import Record


async def report_plan(lineage: str, plan: Plan, identity: Mapping[str, str]) -> None:
    """Show the plan as a table: cause, declared, effective, budget, why; and the identity, where there is one.

    Args:
        lineage: the lineage's name.
        plan: what was planned.
        identity: the digests that are known.
    """
    notes = "".join(f"\n\n{as_words(note)}" for note in plan.notes)
    description = f"Plan of {lineage} on {plan.scheduler}{notes}"
    await acreate_table_artifact(plan_table(plan), key=f"plan-{lineage}", description=description)
    fields = identity_table(plan, identity)
    if fields:
        await acreate_table_artifact(fields, key=f"identity-{lineage}", description=f"Identity of {lineage}")


async def report_execution(supervisor: Supervisor, record: Record, epoch: Epoch | None, try_number: int) -> None:
    """Show one try: its execution with the end of its log; then the lineage's table and timeline, renewed.

    Args:
        supervisor: knows the lineage.
        record: the lineage's, for this report alone: the supervisor goes on beside it with its own.
        epoch: the execution that this try has carried; None where it came to none.
        try_number: which try of the task it is, from 1.
    """
    entries = await asyncio.to_thread(record.entries)
    history = await asyncio.to_thread(history_of, entries, supervisor.root)
    for row in history.rows:
        if row.epoch == epoch:
            await _report_try(supervisor, row, try_number)
    await acreate_table_artifact(
        [table_row(row) for row in history.rows],
        key=f"lineage-{supervisor.lineage}",
        description=f"Executions of {supervisor.lineage}",
    )
    picture = draw_timeline(supervisor.lineage, history.bars(), history.ticks, history.marks, supervisor.clock.now())
    encoded = base64.b64encode(picture.encode("utf-8")).decode("ascii")
    await acreate_markdown_artifact(
        f"![timeline of {supervisor.lineage}](data:image/svg+xml;base64,{encoded})",
        key=f"timeline-{supervisor.lineage}",
        description=f"Timeline of {supervisor.lineage}",
    )


async def _report_try(supervisor: Supervisor, row: ExecutionRow, try_number: int) -> None:
    path = await asyncio.to_thread(supervisor.scheduler.log, row.object) if row.object is not None else None
    tail = await asyncio.to_thread(tail_of, path) if path is not None else ""
    await acreate_markdown_artifact(
        execution_page(row, path, tail),
        key=f"execution-{supervisor.lineage}",
        description=f"Try {try_number} of {supervisor.lineage}: {row.epoch}",
    )
