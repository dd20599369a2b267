"""What is done at once when a run of flow ``supervise`` is cancelled and its worker lives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.errors import LineageError
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.ending import see_to_it
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.naming import named
from prefect_dispatch.tasks.wishes import record_wish

SEE_TO_IT_SECONDS = 60.0
"""How long the job's end is waited for; the run says Cancelling meanwhile."""


async def stop_cancelled(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:
    """Stop the job of a run that was cancelled. Called by the worker, once it has ended the run's process.

    Where nobody calls it, as when the worker is dead, flow ``reconcile`` does the same.

    Args:
        flow: the flow.
        flow_run: its run.
        state: Cancelling.
    """
    logger, clock = flow_run_logger(flow_run), SystemClock()
    job = await resolve(named(JobSpec.model_validate(flow_run.parameters["job"]), flow_run), Path.cwd())
    record = open_record(job.record_root, job.spec.lineage, clock)
    own = flow_run.state if flow_run.state is not None and flow_run.state.is_cancelling() else state
    try:
        told = await asyncio.to_thread(record_wish, record, flow_run.model_copy(update={"state": own}))
    except LineageError as error:
        told = str(error)  # It comes too late; what others asked for is seen to all the same.
    if told:
        logger.info("%s", told, extra={"action": "run.cancelled"})
    after = await see_to_it(record, clock, SEE_TO_IT_SECONDS)
    if after.opened is None:
        return
    Announcer(record.lineage, await asyncio.to_thread(record.id)).settled(after)
    if after.finished is not None:
        logger.info("%s is %s", record.lineage, after.finished.outcome, extra={"action": "lineage.finished"})
