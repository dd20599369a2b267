"""The flow that carries one job from its opening to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow, get_run_logger, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Cancelled, Completed, Failed

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.model.facts import CarriedBy, Outcome
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import Happening, JobHeld, TakenOver
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.tasks.execute import execute, retries_for
from prefect_dispatch.tasks.reporter import Reporter
from prefect_dispatch.tasks.reports import report_plan


@flow(name="supervise", flow_run_name="supervise-{job.lineage}", persist_result=False, validate_parameters=True)
async def supervise(job: JobSpec) -> State[Any]:
    """Run one long, preemptible job to its end: submit it, watch it, run it again by its rules, or hold it.

    Started again for the same lineage, it takes up where the record stands: a killed run loses nothing.

    Args:
        job: the job. Relative places are relative to the folder that this flow runs in.

    Returns:
        Completed when the program exited 0; Failed when a rule said so; Failed named ``Held`` with the reason when a
        person must decide; Cancelled named ``Stopped`` when a person stopped it, ``HandedOver`` when another run of
        this flow has taken the lineage over.

    Raises:
        SpecError: the spec asks for what is not there.
        LineageError: the lineage is finished, or open with another spec.
    """
    logger = get_run_logger()
    clock = SystemClock()
    resolved = await resolve(job, Path.cwd())
    spec = resolved.spec
    planned = await asyncio.to_thread(plan_of, resolved)
    record = open_record(resolved.record_root, spec.lineage, clock)
    state = await asyncio.to_thread(open_lineage, record, resolved, planned)
    supervisor = await asyncio.to_thread(supervisor_of, record, state, clock)
    carrier, reporter = _flow_run_id(), Reporter()
    if carrier is not None:
        state = await supervisor.append(CarriedBy(flow_run=carrier), logger.warning)
        reporter.soon("tags", _tag_run(carrier, spec.lineage, state.generation))
    logger.info(
        "lineage %s is at fact %d of %s", spec.lineage, state.seq, record.location, extra={"action": "lineage.taken_up"}
    )
    reporter.soon("plan", report_plan(spec.lineage, planned, state.opened.identity if state.opened else {}))
    with tags(f"lineage:{spec.lineage}", f"generation:{state.generation}"):
        happening = await execute.with_options(retries=retries_for(state))(supervisor, carrier, reporter)
    await reporter.finish()
    return _final_state(happening)


async def carry(job: JobSpec) -> State[Any]:
    """Run :func:`supervise` as a function; what went wrong is in the state that it returns."""
    # The two type checkers disagree on what a flow returns that is asked for its state.
    running: Any = supervise(job, return_state=True)
    state: State[Any] = await running
    return state


async def _tag_run(flow_run: str, lineage: str, generation: int) -> None:
    """Tag the flow run, so that the runs of a lineage are found together."""
    async with get_client() as client:
        tagged = {*(await client.read_flow_run(UUID(flow_run))).tags, f"lineage:{lineage}", f"generation:{generation}"}
        await client.update_flow_run(UUID(flow_run), tags=sorted(tagged))


def _final_state(happening: Happening) -> State[Any]:
    if isinstance(happening, TakenOver):
        return Cancelled(name="HandedOver", message=f"flow run {happening.by} carries the lineage now")
    if isinstance(happening, JobHeld):
        return Failed(name="Held", message=_hold_words(happening.state))
    finished = happening.state.finished
    if finished is None:
        return Failed(message="the lineage is neither finished nor held")
    saved = f"; final save {finished.final_save}" if finished.final_save else ""
    message = f"{finished.outcome}: {finished.detail}{saved}"
    if finished.outcome is Outcome.SUCCEEDED:
        return Completed(message=message)
    if finished.outcome is Outcome.STOPPED:
        return Cancelled(name="Stopped", message=message)
    return Failed(message=message)


def _hold_words(state: LineageState) -> str:
    if state.hold is None:
        return "held"
    hold = state.hold.opened
    return f"{hold.why}; to go on: prefect-dispatch submit JOB --run-again {hold.hold}"


def _flow_run_id() -> str | None:
    context = FlowRunContext.get()
    return str(context.flow_run.id) if context is not None and context.flow_run is not None else None
