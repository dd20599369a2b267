"""The task that supersedes a job: one fact, however often it is tried."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from prefect_dispatch.errors import LineageError, StoreError, StoreUnreachable, UsageError
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor import superseding
from prefect_dispatch.supervisor.opening import owner
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.refusal import refused
from prefect_dispatch.tasks.resuming import end_superseded

RETRIES = 5
RETRY_SECONDS = 10


async def only_a_store_that_failed(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Retry what may pass by itself: a refusal would be one again."""
    return isinstance(await state.aresult(raise_on_failure=False), StoreError | StoreUnreachable)


@task(
    name="supersede",
    task_run_name="supersede-{record.lineage}",
    retries=RETRIES,
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=only_a_store_that_failed,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def supersede(
    record: Record, job: ResolvedJob, plan: Plan, resume: str | None, note: str, request: str, meant: int
) -> LineageState | State[Any]:
    """Open the next generation, once; then end the runs that wait with a question about an older one.

    Args:
        record: the lineage's.
        job: the resolved job.
        plan: what its rules become.
        resume: where it goes on from; None for as the present generation would.
        note: why, for the record.
        request: the flow run that asks. A try that comes after one whose reply was lost finds that it is done.
        meant: the generation that is superseded. No try takes the place of another one that somebody has opened since.

    Returns:
        The lineage's state; where it was refused, the state of a task run that failed by that error.
    """
    try:
        state = await asyncio.to_thread(
            lambda: superseding.supersede(
                record, job, plan, who=owner(), resume=resume, note=note, request=request, meant=meant
            )
        )
    except (LineageError, UsageError) as error:
        return refused(error)
    logger = get_run_logger()
    text = "lineage %s is at generation %d"
    logger.info(text, record.lineage, state.generation, extra={"action": "lineage.superseded"})
    try:
        for run in await end_superseded(record):
            logger.info("flow run %s waits no more", run, extra={"action": "hold.superseded"})
    except httpx.HTTPError as error:
        # ``poll_cessation`` does it too.
        logger.warning("old flow runs cannot be ended yet: %s", error, extra={"action": "hold.api_away"})
    return state
