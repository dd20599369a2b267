"""The runs of the flows that carry jobs, as Prefect knows them, read with one query for all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort

PAGE = 200
CARRYING = ("supervise", "supersede")
"""The flows whose runs carry jobs."""
OUR_FLOWS = FlowFilter(name=FlowFilterName(any_=list(CARRYING)))
ENDED_WITHIN = timedelta(days=7)
"""Runs that ended longer ago name no store any more that nobody else names."""
_LIVE = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING, StateType.SCHEDULED]
_BROKEN_OFF = [StateType.CANCELLED, StateType.CRASHED, StateType.FAILED]


async def read_live_runs(client: PrefectClient) -> list[FlowRun]:
    """All runs that are not over: one request for every 200."""
    return await _read_all(client, _of_states(_LIVE))


async def read_broken_runs(client: PrefectClient) -> list[FlowRun]:
    """The latest runs that ended otherwise than well."""
    ended = FlowRunFilterEndTime.model_validate({"after_": datetime.now(UTC) - ENDED_WITHIN})
    chosen = _of_states(_BROKEN_OFF).model_copy(update={"end_time": ended})
    return await client.read_flow_runs(
        flow_filter=OUR_FLOWS, flow_run_filter=chosen, limit=PAGE, sort=FlowRunSort.END_TIME_DESC
    )


async def read_runs(client: PrefectClient, ids: Collection[UUID]) -> dict[str, FlowRun]:
    """The runs of these ids, as far as there are any: one request for every 200."""
    wanted, found = list(ids), dict[str, FlowRun]()
    for begin in range(0, len(wanted), PAGE):
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=wanted[begin : begin + PAGE]))
        found |= {str(run.id): run for run in await client.read_flow_runs(flow_run_filter=chosen, limit=PAGE)}
    return found


def jobs_of(runs: Sequence[FlowRun]) -> list[Mapping[str, Any]]:
    """The jobs that runs were started with."""
    found = (run.parameters.get("job") for run in runs)
    return [job for job in found if isinstance(job, Mapping)]


def _of_states(types: list[StateType]) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types)))


async def _read_all(client: PrefectClient, chosen: FlowRunFilter) -> list[FlowRun]:
    found: list[FlowRun] = []
    while True:
        page = await client.read_flow_runs(
            flow_filter=OUR_FLOWS, flow_run_filter=chosen, limit=PAGE, offset=len(found), sort=FlowRunSort.ID_DESC
        )
        found += page
        if len(page) < PAGE:
            return found
