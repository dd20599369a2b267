"""The flow runs that wait for a person, all of them: woken, retired or tidied up as the records say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound

from prefect_dispatch.errors import DispatchError, LineageError
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.carriers import carried_generation
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.held_run import HELD_TAG, dress, is_complete, lineage_of, own_name
from prefect_dispatch.tasks.resuming import Woken, how_lifted, retire, wake
from prefect_dispatch.tasks.supervise_runs import OUR_FLOWS, jobs_of
from prefect_dispatch.tasks.wishes import record_wish

POLL_TAG = "prefect-dispatch-poll"
"""The runs of our pollers, by which those that are to be deleted are told from those of other people's flows."""
PAGE = 200
MOST_TIDIED = 200
"""Runs that are over and are tidied up in one poll."""
FORM_DUE = timedelta(seconds=30)
"""How long after its pause a run's form may still be on its way."""
FORM_CHECKED = timedelta(hours=1)
"""How long after its pause each poll looks whether a run has its form; of those that wait longer it takes a sample."""
SAMPLE = 20
AT_A_TIME = 16
"""So many runs are seen to at once."""


@dataclass(frozen=True)
class HeldRuns:
    """The runs that are tagged as held.

    Attributes:
        waiting: those that wait for a person.
        over: those that are over; the tag is a left-over.
    """

    waiting: tuple[FlowRun, ...]
    over: tuple[FlowRun, ...]

    def jobs(self) -> list[Mapping[str, Any]]:
        """The jobs that the waiting runs were started with."""
        return jobs_of(self.waiting)

    def jobs_over(self) -> list[Mapping[str, Any]]:
        """The jobs of the runs that are over: what was asked of them is written down where their records are."""
        return jobs_of(self.over)

    async def settle(
        self, client: PrefectClient, find: Callable[[str], Sequence[Record]], troubles: list[str]
    ) -> list[str]:
        """Do for each run what its lineage's record says. Idempotent: the next poll does what a killed one left undone.

        Args:
            client: Prefect.
            find: the records of lineages of a name; there is one in each store at most.
            troubles: what could not be done is added.

        Returns:
            What was done, in words.
        """
        over, checked = {run.id for run in self.over}, {run.id for run in self._checked()}
        slots = asyncio.Semaphore(AT_A_TIME)

        async def settle(run: FlowRun) -> list[str]:
            async with slots:
                try:
                    if run.id in over:
                        return await _settle_over(client, run, find(lineage_of(run)), troubles)
                    return await _settle_waiting(client, run, find(lineage_of(run)), run.id in checked, troubles)
                except ObjectNotFound:
                    return []
                except (DispatchError, httpx.HTTPError) as error:
                    troubles.append(f"flow run {run.id}: {error}")
                    return []

        # Two runs of one lineage share its record, which one call uses at a time; so these are done one by one.
        by_lineage: dict[str, list[FlowRun]] = {}
        for run in (*self.over, *self.waiting):
            by_lineage.setdefault(lineage_of(run), []).append(run)

        async def settle_all(runs: Sequence[FlowRun]) -> list[str]:
            return [text for run in runs for text in await settle(run)]

        told = await asyncio.gather(*(settle_all(runs) for runs in by_lineage.values()))
        return [text for each in told for text in each]

    def _checked(self) -> list[FlowRun]:
        """The waiting runs whose form is looked for in this poll."""
        now = datetime.now(UTC)
        old = [run for run in self.waiting if _waited(run, now) > FORM_CHECKED]
        young = [run for run in self.waiting if FORM_DUE < _waited(run, now) <= FORM_CHECKED]
        return [*young, *random.sample(old, min(SAMPLE, len(old)))]


async def read_held_runs(client: PrefectClient) -> HeldRuns:
    """Ask Prefect for all runs of ours that are tagged as held: one request for every 200."""
    waiting: list[FlowRun] = []
    while len(page := await _tagged(client, [StateType.PAUSED], PAGE, len(waiting))) == PAGE:
        waiting += page
    final = [StateType.CANCELLED, StateType.COMPLETED, StateType.FAILED, StateType.CRASHED]
    over = await _tagged(client, final, MOST_TIDIED, 0)
    return HeldRuns(_ours((*waiting, *page)), _ours(over))


def _ours(runs: Sequence[FlowRun]) -> tuple[FlowRun, ...]:
    """Those that carry lineages: a flow of somebody else's may have our flow's name, and a tag of that word."""
    return tuple(run for run in runs if lineage_of(run))


async def mark_poll(client: PrefectClient) -> None:
    """Mark the flow run that this is as one of a poller of ours: flows of other people's may have the same name."""
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    if run is not None and POLL_TAG not in run.tags:
        await client.update_flow_run(run.id, tags=sorted({*run.tags, POLL_TAG}))


async def delete_old_polls(client: PrefectClient, flow: str, before: datetime) -> int:
    """Delete the marked runs of a poller that went well, or were not needed, and ended before a time: how many."""
    chosen = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[POLL_TAG]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.COMPLETED, StateType.CANCELLED])),
        end_time=FlowRunFilterEndTime.model_validate({"before_": before}),
    )
    old = await client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])), flow_run_filter=chosen, limit=PAGE
    )
    for run in old:
        try:
            await client.delete_flow_run(run.id)
        except ObjectNotFound:
            continue
    return len(old)


async def _tagged(client: PrefectClient, types: list[StateType], limit: int, offset: int) -> list[FlowRun]:
    chosen = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[HELD_TAG]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types)),
    )
    return await client.read_flow_runs(
        flow_filter=OUR_FLOWS,
        flow_run_filter=chosen,
        limit=limit,
        offset=offset,
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
    )


async def _settle_over(
    client: PrefectClient, run: FlowRun, records: Sequence[Record], troubles: list[str]
) -> list[str]:
    words: list[str] = []
    unread: list[str] = []
    for record in records:
        try:
            words.append(await asyncio.to_thread(record_wish, record, run))
        except LineageError:
            pass  # It came too late there.
        except DispatchError as error:
            unread.append(f"flow run {run.id}: {error}")
    if not unread:
        await dress(client, run.id, (), held=False, name=own_name(run, lineage_of(run)))
    troubles += unread
    return [word for word in words if word]


async def _settle_waiting(
    client: PrefectClient, run: FlowRun, records: Sequence[Record], check: bool, troubles: list[str]
) -> list[str]:
    told: list[str] = []
    for record in records:
        # Its record is in one of the stores: another one that is away hides it from nobody.
        try:
            state = await asyncio.to_thread(record.refresh)
            told += await _settle_by(client, run, record, state, check)
        except LineageError:
            continue
        except DispatchError as error:
            troubles.append(f"flow run {run.id}: {error}")
    return told


async def _settle_by(
    client: PrefectClient, run: FlowRun, record: Record, state: LineageState, check: bool
) -> list[str]:
    own = str(run.id)
    if state.carried_by != own:
        entries = await asyncio.to_thread(record.entries)
        if carried_generation(entries, own) is not None:
            if not await retire(client, await client.read_flow_run(run.id), state, entries):
                return []
            who = f"{state.carried_by} carries {record.lineage}" if state.carried_by else f"{record.lineage} is resumed"
            return [f"flow run {own} waits no more, {who}"]
        return []
    if state.hold is None:
        why = how_lifted(state)
    elif check and not await is_complete(run):
        why = "its form was missing; it asks again"
    else:
        return []
    return [f"{record.lineage} is resumed: {why}"] if await wake(client, run.id, why) is Woken.RESUMED else []


def _waited(run: FlowRun, now: datetime) -> timedelta:
    return now - run.state.timestamp if run.state is not None else timedelta(0)
