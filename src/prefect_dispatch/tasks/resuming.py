"""Runs that wait for a person are woken when their hold was lifted otherwise: by a command, a signal, or in time."""

from __future__ import annotations

import asyncio
import enum
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Running, Scheduled

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.record import Record


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


async def retire(client: PrefectClient, run: FlowRun, carrier: str) -> None:
    """End a suspended run whose lineage another one carries by now: an answer to it could only come too late."""
    if run.state is not None and run.state.is_paused() and run.state.state_details.pause_reschedule:
        message = f"flow run {carrier} carries the lineage now"
        reach("prefect.retire")
        await client.set_flow_run_state(run.id, Cancelled(name="HandedOver", message=message))


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        return None
