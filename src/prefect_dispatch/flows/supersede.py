"""The flow that has a changed job take the place of the one that a lineage was opened with, and carries it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from pydantic import Field

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.errors import DispatchError, StoreError, StoreUnreachable, UsageError
from prefect_dispatch.flows.cancelled import stop_cancelled
from prefect_dispatch.flows.supervise import carry_on, final_state, flow_run_id, meant_generation, over_already
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.naming import named, present_run, run_name
from prefect_dispatch.tasks.refusal import refused
from prefect_dispatch.tasks.supersede import RETRIES, RETRY_SECONDS
from prefect_dispatch.tasks.supersede import supersede as supersede_once


@flow(
    name="supersede",
    flow_run_name=run_name,
    on_cancellation=[stop_cancelled],
    persist_result=False,
    validate_parameters=True,
)
async def supersede(
    lineage: Annotated[str, Field(description="The lineage, open or finished")],
    job: Annotated[JobSpec, Field(description="The changed job, of the same lineage")],
    resume: Annotated[
        str | None,
        Field(description="latest, scratch, or a publication's name; as the old job would go on where left empty"),
    ] = None,
    note: Annotated[str, Field(description="Why, for the record")] = "",
) -> State[Any]:
    """Open the next generation of a lineage with a changed job, and carry it to its end, as ``supervise`` does.

    The old job's object is asked to stop and not waited for; its flow run ends as Cancelled named ``Superseded``.
    Started again from the top, as after a hold, or retried, this run finds its own generation and carries it on.

    Args:
        lineage: the lineage.
        job: the changed job. Relative places are relative to the folder that this flow runs in.
        resume: where it goes on from.
        note: why.

    Returns:
        As for ``supervise``.

    Raises:
        UsageError: the job is of another lineage.
        LineageError: it cannot be superseded so, or somebody else was faster; the text says what to do. The run is
            Failed, named ``Refused``, and says so in one line.
    """
    try:
        return await _supersede(lineage, named(job, present_run()), resume, note)
    except DispatchError as error:
        return refused(error)


async def _supersede(lineage: str, job: JobSpec, resume: str | None, note: str) -> State[Any]:
    if job.lineage != lineage:
        raise UsageError(f"the job is of lineage {job.lineage!r}, not of {lineage!r}")
    resolved = await resolve(job, Path.cwd())
    carrier = flow_run_id()
    planned = await asyncio.to_thread(plan_of, resolved)
    record = open_record(resolved.record_root, lineage, SystemClock())
    # The two type checkers disagree on what a task returns that is asked for its state.
    superseding: Any = supersede_once(
        record, resolved, planned, resume or None, note, carrier or "", await _present(record), return_state=True
    )
    state: LineageState = await (await superseding).aresult()
    over = over_already(state, await asyncio.to_thread(meant_generation, record, carrier))
    if over is not None:
        return final_state(over)
    return await carry_on(record, state, planned, carrier)


async def _present(record: Record) -> int:
    """The present generation, read once for all tries; a store that fails is asked again as often as by the task."""
    for _ in range(RETRIES):
        try:
            return (await asyncio.to_thread(record.refresh)).generation
        except (StoreError, StoreUnreachable) as error:
            get_run_logger().warning("%s; it is read again", error, extra={"action": "record.trouble"})
            await asyncio.sleep(RETRY_SECONDS)
    return (await asyncio.to_thread(record.refresh)).generation
