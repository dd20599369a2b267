"""What a person asks of a job by what they do to its flow run in Prefect: to end it, or to have it save and wait."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.facts import Entry, HoldLifted, HoldOpened, StopRequested
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.carriers import carrier_of
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.stop_requests import ask_to_stop, ask_to_suspend
from prefect_dispatch.tasks.adoption import is_next
from prefect_dispatch.tasks.held_run import is_question

IN_THE_UI = "a person in the Prefect UI"
"""Prefect does not tell who they are."""
_DELETED = "no longer exists, cancelled run."


class Wish(enum.StrEnum):
    """What is asked for."""

    STOP = "cancelled"
    """The run was cancelled: the job is to end."""
    SUSPEND = "suspended"
    """The run was suspended or paused, and not by us: the job is to save and wait."""


def wish_of(state: State[Any] | None) -> Wish | None:
    """What a run's state asks for; None for nothing, as for every state that this package sets itself."""
    if state is None:
        return None
    if state.is_cancelling() or (state.is_cancelled() and state.name == "Cancelled" and not _is_nobodys(state)):
        return Wish.STOP
    return Wish.SUSPEND if is_suspended_outside(state) else None


def is_suspended_outside(state: State[Any] | None) -> bool:
    """Whether a run was suspended or paused without one of our questions."""
    return state is not None and state.is_paused() and not is_question(state.state_details.pause_key)


async def overtaken_wish(client: PrefectClient, run: FlowRun) -> FlowRun:
    """A crashed run as it was before that: a worker that finds a process dead puts it over what a person has asked for.

    Returns:
        The run in the state by which something is asked for, if that was its last one before it crashed; else as it is.
    """
    if run.state is None or not run.state.is_crashed():
        return run
    states = sorted(await client.read_flow_run_states(run.id), key=lambda state: state.timestamp)
    before = [state for state in states if not state.is_crashed()]
    return run.model_copy(update={"state": before[-1]}) if before and wish_of(before[-1]) is not None else run


def record_wish(record: Record, run: FlowRun) -> str:
    """Write down what a person asks for. Idempotent: each state of a run is one wish, whoever reads it how often.

    Only the run that carries the job is asked, or the one that was started to take it over from there, whether it
    came to that or not: an earlier one has handed it over.

    Returns:
        What was written, in words; empty where there was nothing to write.

    Raises:
        LineageError: it came too late; the text says what was before it. Nothing was changed.
    """
    wish, own = wish_of(run.state), str(run.id)
    if wish is None or run.state is None:
        return ""
    state, entries = record.refresh(), record.entries()
    carrier = carrier_of(entries)
    carries = carrier is not None and carrier.flow_run == own
    if not state.open or not (carries or is_next(run, entries, record.id)) or _is_noted(entries, run):
        return ""
    if wish is Wish.SUSPEND and (state.hold is not None or state.stop is not None):
        return ""
    if state.stop is not None and state.stop.intent == "abandon":
        return ""
    note = f"{_noted(run, wish)}, state {run.state.id}"
    # It counts while the job is carried by whom it was just read to be: by this run, or by the one before it.
    by = own if carries else state.carried_by
    reach("prefect.wish")
    if wish is Wish.SUSPEND:
        ask_to_suspend(record, who=IN_THE_UI, note=note, carrier=by)
        return f"{record.lineage} is to save and wait: {note}"
    if state.hold is not None:
        choices.stop(record, state.hold.opened.hold, who=IN_THE_UI, note=note, carrier=by)
    else:
        ask_to_stop(record, who=IN_THE_UI, note=note, carrier=by)
    return f"{record.lineage} is to stop: {note}"


def is_resumed(run: FlowRun, entries: Sequence[Entry], hold: str) -> bool:
    """Whether a hold is where a suspension of this very run led to, and the run goes on: that answers the hold."""
    if run.state is None or run.state.is_paused() or run.state.is_final() or run.state.is_cancelling():
        return False
    request: StopRequested | None = None
    for entry in entries:
        if isinstance(entry.fact, StopRequested):
            request = entry.fact
        elif isinstance(entry.fact, HoldOpened):
            if entry.fact.hold == hold:
                return request is not None and request.note.startswith(f"{_noted(run, Wish.SUSPEND)},")
            request = None
    return False


def _noted(run: FlowRun, wish: Wish) -> str:
    return f"flow run {run.id} was {wish}"


def _is_noted(entries: Sequence[Entry], run: FlowRun) -> bool:
    """Whether this state of the run was read before; what came of it may have been taken back since."""
    end = f", state {run.state.id if run.state is not None else None}"
    facts = (entry.fact for entry in entries)
    return any(isinstance(fact, StopRequested | HoldLifted) and fact.note.endswith(end) for fact in facts)


def _is_nobodys(state: State[Any]) -> bool:
    """Whether Prefect itself has cancelled a run, for want of a slot or of its deployment: nobody asked for it."""
    message = state.message or ""
    return message.startswith("Deployment ") and ("concurrency" in message or _DELETED in message)
