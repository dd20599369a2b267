"""The flow that brings together what records say and what became of the flow runs that carried them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from prefect_dispatch.blocks.record_roots import inline_roots, looked_after
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.supervisor.beats import sweep_beats
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.polls import RECONCILE, note_poll
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
    clock, logger = SystemClock(), get_run_logger()
    troubles: list[str] = []
    beyond: list[str] = []
    looked: list[str] = []
    async with get_client() as client:
        await mark_poll(client)
        live = await read_live_runs(client)
        known = [*live, *await read_broken_runs(client)] if stores is None else live
        named = await looked_after(stores, (), troubles)
        roots = list(dict.fromkeys([*named, *(inline_roots(jobs_of(known)) if stores is None else ())]))
        work = Reconciling(client, deployment, clock, troubles)
        for root in roots:
            try:
                await work.add(root)
                looked.append(root)
            except DispatchError as error:
                # One that only a run names may not be made yet, or be somebody's whose access this process lacks.
                (troubles if root in named else beyond).append(str(error))
        await work.settle()
        await work.end_waiting(live)
        await work.mark_silent(live)
        await delete_old_polls(client, NAME, clock.now() - RUNS_KEPT)
    for text in beyond:
        logger.warning("not looked after: %s", text, extra={"action": "store.beyond"})
    for text in work.told:
        logger.info("%s", text, extra={"action": "lineage.reconciled"})
    for root in looked:
        await asyncio.to_thread(sweep_beats, root, clock.now() - BEATS_KEPT)
        if not troubles:
            await asyncio.to_thread(note_poll, root, RECONCILE, clock.now())
    summary = f"{work.count} open lineages in {len(looked)} stores{''.join(f'; {text}' for text in work.told)}"
    if beyond:
        summary = f"{summary}; not looked after: {'; '.join(beyond)}"
    if troubles:
        return Failed(message=f"{summary}; not done: {'; '.join(troubles)}")
    return Completed(message=summary)
