"""What people look at in the Prefect UI: plan, tries, lineage table, progress and timeline, as artifacts."""

from __future__ import annotations

import asyncio
import base64
import html
import os
import time
from uuid import UUID

from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.timeline import draw_timeline
from prefect_dispatch.format.printable import printable
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.history import ExecutionRow, history_of
from prefect_dispatch.supervisor.tables import plan_table, table_row

LOG_LINES = 200
LOG_BYTES = 64 * 1024
PROGRESS_INTERVAL_SECONDS = 5.0


async def report_plan(lineage: str, plan: Plan) -> None:
    """Show the plan as a table: cause, declared, effective, budget, why."""
    notes = "".join(f"\n\n{note}" for note in plan.notes)
    description = f"Plan of {lineage} on {plan.scheduler}{notes}"
    await acreate_table_artifact(plan_table(plan), key=f"plan-{lineage}", description=description)


async def report_execution(supervisor: Supervisor, state: LineageState, try_number: int) -> None:
    """Show one try: its execution with the end of its log; then the lineage's table and timeline, renewed."""
    entries = await supervisor.entries()
    history = await asyncio.to_thread(history_of, entries, supervisor.root)
    rows = history.rows
    if rows:
        row = rows[-1]
        path = await asyncio.to_thread(supervisor.scheduler.log, row.object) if row.object is not None else None
        tail = await asyncio.to_thread(tail_of, path) if path is not None else ""
        await acreate_markdown_artifact(
            _try_page(row, path, tail),
            key=f"execution-{supervisor.lineage}",
            description=f"Try {try_number} of {supervisor.lineage}: {row.epoch}",
        )
    await acreate_table_artifact(
        [table_row(row) for row in rows],
        key=f"lineage-{supervisor.lineage}",
        description=f"Executions of {supervisor.lineage}",
    )
    picture = draw_timeline(supervisor.lineage, history.bars(), history.ticks, history.marks, SystemClock().now())
    encoded = base64.b64encode(picture.encode("utf-8")).decode("ascii")
    await acreate_markdown_artifact(
        f"![timeline of {supervisor.lineage}](data:image/svg+xml;base64,{encoded})",
        key=f"timeline-{supervisor.lineage}",
        description=f"Timeline of {supervisor.lineage}",
    )


def tail_of(path: str) -> str:
    """The last 200 lines of a log, at most 64 KiB, whatever bytes it holds. Only of a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return f"(the log cannot be read: {error.strerror})"
    with os.fdopen(descriptor, "rb") as log:
        size = os.fstat(descriptor).st_size
        log.seek(max(0, size - LOG_BYTES))
        text = log.read(LOG_BYTES).decode("utf-8", "replace")
    return "\n".join(printable(line, 2000) for line in text.splitlines()[-LOG_LINES:])


def _try_page(row: ExecutionRow, path: str | None, tail: str) -> str:
    shown = {name: value for name, value in table_row(row).items() if value and name != "epoch"}
    facts = "".join(f"| {name} | {html.escape(value)} |\n" for name, value in shown.items())
    detail = f"\n{html.escape(printable(row.detail, 1000))}\n" if row.detail else ""
    log = f"\nLog: `{path}`\n\n<pre>{html.escape(tail)}</pre>\n" if path is not None else ""
    return f"| {row.epoch} | |\n|---|---|\n{facts}{detail}{log}"


class ProgressReport:
    """One progress artifact of a try, made when the program first tells its progress, then updated now and then."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._artifact: UUID | None = None
        self._shown: tuple[float, str] | None = None
        self._next = 0.0

    async def update(self, state: LineageState, *, last: bool = False) -> None:
        """Show the present progress, if there is one and it is time to; ``last`` does not wait for that."""
        root, submission = self._supervisor.root, state.newest
        if root is None or submission is None or submission.newest is None:
            return
        if time.monotonic() < self._next and not last:
            return
        attempt = submission.attempt(submission.newest.restart)
        progress = await asyncio.to_thread(root.progress, attempt)
        if progress is None or progress.percent is None:
            return
        shown = (progress.percent, printable(progress.status, 200))
        if shown == self._shown:
            return
        self._shown = shown
        self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS
        if self._artifact is None:
            self._artifact = await acreate_progress_artifact(
                shown[0], key=f"progress-{self._supervisor.lineage}", description=shown[1] or "running"
            )
        else:
            await aupdate_progress_artifact(self._artifact, shown[0], description=shown[1] or "running")
