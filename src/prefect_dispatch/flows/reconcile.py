"""The flow that brings together what records say and what became of the flow runs that carried them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from pydantic import Field

from prefect_dispatch.blocks.record_roots import inline_roots, looked_after
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.supervisor.beats import sweep_beats
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.polls import RECONCILE
from prefect_dispatch.tasks.held_runs import delete_old_polls, mark_poll
from prefect_dispatch.tasks.supervise_runs import jobs_of, read_broken_runs, read_live_runs

NAME = "reconcile"
RUNS_KEPT = timedelta(hours=1)
"""How long the completed runs of this flow are kept: there is one each minute."""
BEATS_KEPT = timedelta(hours=1)


@flow(name=NAME, flow_run_name=NAME, persist_result=False, validate_parameters=True)
async def reconcile(
    stores: Annotated[
        list[str] | None,
        Field(description="Blocks checkpoint-store/NAME, or folders of records; all blocks where left empty"),
    ] = None,
    deployment: Annotated[
        str, Field(description="The deployment of flow supervise that takes over lineages which nobody carries")
    ] = "supervise/supervise",
) -> State[Any]:
    """Look once after all open lineages. Started every minute; killed anywhere, the next one finishes its work.

    A job whose run was cancelled is stopped, and one whose run was suspended is asked to save and wait, whatever of
    process, worker and server died meanwhile. A lineage whose run crashed, failed or is gone is taken over by a new
    run; a run whose process was killed unseen is marked as crashed first. A crashed run is never revived.

    Args:
        stores: where the records are.
        deployment: where the runs that take over are started from.

    Returns:
        Completed with what was done, or Failed with what could not be; the rest was done all the same. A store that no
        block and no argument names, but a run's job alone, is warned of where it cannot be looked at.
    """
    clock, report = SystemClock(), PollReport()
    async with get_client() as client:
        await mark_poll(client)
        live = await read_live_runs(client)
        known = [*live, *await read_broken_runs(client)] if stores is None else live
        named = await looked_after(stores, (), report.troubles)
        work = Reconciling(client, deployment, clock, report)
        for root in dict.fromkeys([*named, *(inline_roots(jobs_of(known)) if stores is None else ())]):
            try:
                await work.add(root)
                report.roots.append(root)
            except DispatchError as error:
                # One that only a run names may not be made yet, or be somebody's whose access this process lacks.
                (report.troubles if root in named else report.beyond).append(str(error))
        await work.settle()
        await work.end_waiting(live)
        await work.mark_silent(live)
        await delete_old_polls(client, NAME, clock.now() - RUNS_KEPT)
    for root in report.roots:
        await asyncio.to_thread(sweep_beats, root, clock.now() - BEATS_KEPT)
    return await report.end(RECONCILE, f"{work.count} open lineages", clock.now())
