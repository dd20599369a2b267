"""Runs that wait for a person are woken when their hold was lifted otherwise: by a command, a signal, or in time."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Running, Scheduled

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.facts import CarriedBy, Entry
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.carriers import carried_generation
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.end_state import EndState

MOST_CARRIERS = 20
"""Older generations whose runs are looked at, the latest; a run that still waits for any of them is an old question."""


class Woken(enum.StrEnum):
    """What became of an attempt to wake a run."""

    RESUMED = "resumed"
    """It goes on, or will as soon as a worker takes it."""
    NOT_WAITING = "not waiting"
    """It does not wait for anybody; somebody else was faster, or it is over."""
    REFUSED = "refused"
    """Prefect refused it; the pause has run out, say."""
    GONE = "gone"
    """There is no such run: it was deleted, or the lineage is carried by a process without Prefect."""


async def resume_carrier(record: Record) -> Woken:
    """Wake the run that carries a lineage, if it waits for a person and the lineage is not held any more.

    Idempotent, and safe when several do it at once. A run that waits although its lineage goes on with another one
    stays as it is: see :func:`retire`.
    """
    state = await asyncio.to_thread(record.refresh)
    carrier = _uuid(state.carried_by)
    if state.hold is not None:
        return Woken.NOT_WAITING
    if carrier is None:
        return Woken.GONE
    async with get_client() as client:
        return await wake(client, carrier, how_lifted(state))


def superseded_words(state: LineageState) -> str:
    """By what a generation was superseded, for people."""
    owner = state.opened.owner if state.opened is not None else "a person"
    return f"{owner} superseded the job with generation {state.generation}"


def how_lifted(state: LineageState) -> str:
    """Why a run that waits need not wait any more, for its state."""
    if state.finished is not None:
        return f"the job is over: {state.finished.outcome}"
    if state.lifted is None:
        return "the hold is lifted"
    return f"hold {state.lifted.hold} is lifted by {state.lifted.who or state.lifted.lifted_by}"


async def wake(client: PrefectClient, run: UUID, why: str) -> Woken:
    """Have a suspended or paused run go on without an answer.

    Prefect's own call for a resume demands the form to be filled in, so the state that it would set is set here: a
    suspended run is scheduled again, a paused one, whose process waits for this, runs on.
    """
    try:
        # Read as late as can be: between here and the change another may wake it, and a worker start it.
        flow_run = await client.read_flow_run(run)
        if flow_run.state is None or not flow_run.state.is_paused():
            return Woken.NOT_WAITING
        next_state: State[Any] = (
            Scheduled(name="Resuming", message=why)
            if flow_run.state.state_details.pause_reschedule
            else Running(message=why)
        )
        reach("prefect.wake")
        answer = await client.set_flow_run_state(run, next_state)
    except ObjectNotFound:
        return Woken.GONE
    match answer.status:
        case SetStateStatus.ACCEPT:
            return Woken.RESUMED
        case SetStateStatus.ABORT:
            return Woken.NOT_WAITING
        case _:
            return Woken.REFUSED


async def retire(client: PrefectClient, run: FlowRun, state: LineageState, entries: Sequence[Entry]) -> bool:
    """End a suspended run whose lineage another one carries by now, or that was superseded: an answer came too late.

    Returns:
        Whether it waited.
    """
    if run.state is None or not run.state.is_paused() or not run.state.state_details.pause_reschedule:
        return False
    carried = carried_generation(entries, str(run.id))
    if carried is not None and carried < state.generation:
        over: State[Any] = Cancelled(name=EndState.SUPERSEDED, message=superseded_words(state))
    else:
        over = Cancelled(name=EndState.HANDED_OVER, message=f"flow run {state.carried_by} carries the lineage now")
    reach("prefect.retire")
    await client.set_flow_run_state(run.id, over)
    return True


async def end_superseded(record: Record) -> list[str]:
    """End the runs that wait with a question about an older generation. Idempotent.

    Returns:
        Their ids.
    """
    state, entries = await asyncio.to_thread(record.refresh), await asyncio.to_thread(record.entries)
    ended: list[str] = []
    async with get_client() as client:
        for run in last_carriers(entries, below=state.generation):
            with contextlib.suppress(ObjectNotFound):
                if await retire(client, await client.read_flow_run(run), state, entries):
                    ended.append(str(run))
    return ended


def last_carriers(entries: Sequence[Entry], below: int) -> list[UUID]:
    """The run that carried each older generation last, the newest first."""
    last = {each.generation: each.fact.flow_run for each in entries if isinstance(each.fact, CarriedBy)}
    runs = [_uuid(last[generation]) for generation in sorted(last, reverse=True) if generation < below]
    return [run for run in runs if run is not None][:MOST_CARRIERS]


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        return None
