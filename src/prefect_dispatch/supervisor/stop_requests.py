"""What a person may ask of a job that is not held: to end, or to save and wait. Each is one fact, or a clear no."""

from __future__ import annotations

from typing import Literal

from prefect_dispatch.errors import Exists, LineageError
from prefect_dispatch.model.facts import StopRequested
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.record import Record


def ask_to_stop(record: Record, *, who: str, note: str = "", carrier: str | None = None) -> LineageState:
    """Ask for a job's end, whatever state it is in. Idempotent: a second request changes nothing.

    It reaches also what is on its way to the scheduler, and wins over an open hold and over a suspension.

    Args:
        record: the lineage's.
        who: the person.
        note: why, for the record.
        carrier: the flow run in which it was asked for; it counts only while that one carries the lineage.

    Raises:
        LineageError: the lineage was never opened, is over, or carried by another run. Nothing was changed.
    """
    return _ask(record, "abandon", who, note, carrier)


def ask_to_suspend(record: Record, *, who: str, note: str = "", carrier: str | None = None) -> LineageState:
    """Ask a job to save and exit; then it is held until a person has it run again. Idempotent.

    Args:
        record: the lineage's.
        who: the person.
        note: why, for the record.
        carrier: the flow run in which it was asked for; it counts only while that one carries the lineage.

    Raises:
        LineageError: the lineage was never opened, is over, held already, being stopped, or carried by another run.
            Nothing was changed.
    """
    return _ask(record, "suspend", who, note, carrier)


def _ask(
    record: Record, intent: Literal["abandon", "suspend"], who: str, note: str, carrier: str | None
) -> LineageState:
    while True:
        state = record.refresh()
        record.require_writable()
        _require_open(record, state)
        if carrier is not None and state.carried_by != carrier:
            raise LineageError(f"lineage {record.lineage!r} is carried by {state.carried_by} now, and not by {carrier}")
        if intent == "suspend":
            _require_running(record.lineage, state)
        if state.stop is not None and state.stop.intent == intent:
            return state
        try:
            return record.append(StopRequested(intent=intent, who=who, note=note))
        except Exists:
            continue


def _require_open(record: Record, state: LineageState) -> None:
    if state.opened is None:
        raise record.why_not_opened()
    if state.finished is not None:
        record.settle_index()
        raise LineageError(
            f"lineage {record.lineage!r} is over already: {state.finished.outcome}, {state.finished.detail}"
        )


def _require_running(lineage: str, state: LineageState) -> None:
    if state.hold is not None:
        hold = state.hold.opened
        raise LineageError(
            f"lineage {lineage!r} is held already by {hold.hold}: {hold.why}; answer that with prefect-dispatch resume"
        )
    if state.stop is not None and state.stop.intent == "abandon":
        raise LineageError(f"lineage {lineage!r} is being stopped for {state.stop.who or 'a person'}")
