"""A person's choices: what a held job does next, and taking up one that is over. Each is one fact, or a clear no."""

from __future__ import annotations

import contextlib

from prefect_dispatch.errors import Exists, LineageError
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.deadline import leaves_no_time
from prefect_dispatch.model.facts import (
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Outcome,
    Reopened,
    Resolution,
    StopRequested,
)
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import Append
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.named_save import require_published
from prefect_dispatch.supervisor.record import Record

REOPENABLE = (Outcome.HOLD_EXPIRED, Outcome.STOPPED, Outcome.FAILED)
"""After these something is left to be done. A success is over, and a deadline that has passed never moves."""
_WORDS = {
    Resolution.RUN_AGAIN: "run it again",
    Resolution.STOP: "stop it",
    Resolution.CONTINUE_FROM: "continue from another save",
    Resolution.FROM_SCRATCH: "start from scratch",
    Resolution.EXPIRE: "end it",
}


def awaiting(state: LineageState) -> HoldOpened | None:
    """The hold that a person may answer now: the open one, or one that a signal or its expiry lifted a moment ago."""
    if state.hold is not None:
        return state.hold.opened
    if state.lifted is not None and state.lifted.lifted_by is not LiftedBy.PERSON and state.finished is None:
        return state.lifted_hold
    return None


def run_again(record: Record, hold: str | None = None, *, who: str, note: str = "") -> LineageState:
    """Answer a hold: run the job again, by the rule that the hold stood for.

    Args:
        record: the lineage's.
        hold: the hold that is answered, as it was shown; the one that is open now where None.
        who: the person.
        note: why, for the record.

    Raises:
        LineageError: that hold does not wait for an answer; the text says what became of it. Nothing was changed.
    """
    return _answer(record, hold, Resolution.RUN_AGAIN, None, who, note)


def stop(
    record: Record, hold: str | None = None, *, who: str, note: str = "", carrier: str | None = None
) -> LineageState:
    """Answer a hold: end the job. It counts also where a signal was faster, whatever followed from that.

    Args:
        record: the lineage's.
        hold: the hold that is answered, as it was shown; the one that is open now where None.
        who: the person.
        note: why, for the record.
        carrier: the flow run in which it was asked for; it counts only while that one carries the lineage.

    Raises:
        LineageError: that hold does not wait for an answer, or another run carries the lineage; the text says what
            became of it. Nothing was changed.
    """
    return _answer(record, hold, Resolution.STOP, None, who, note, carrier)


def continue_from(
    record: Record, publication: str, hold: str | None = None, *, who: str, note: str = ""
) -> LineageState:
    """Answer a hold: go on from this publication, and from what is saved after it.

    Args:
        record: the lineage's.
        publication: its path below the root or its full name, as ``dispatch-job list`` prints them.
        hold: the hold that is answered, as it was shown; the one that is open now where None.
        who: the person.
        note: why, for the record.

    Raises:
        LineageError: there is no such publication, or this process cannot see whether there is; or that hold does not
            wait for an answer. Nothing was changed.
    """
    save = require_published(record.lineage, root_view_of(record.lineage, record.refresh()), publication)
    return _answer(record, hold, Resolution.CONTINUE_FROM, save.name, who, note)


def from_scratch(record: Record, hold: str | None = None, *, who: str, note: str = "") -> LineageState:
    """Answer a hold: start anew, without any save that is published so far.

    Args:
        record: the lineage's.
        hold: the hold that is answered, as it was shown; the one that is open now where None.
        who: the person.
        note: why, for the record.

    Raises:
        LineageError: that hold does not wait for an answer; the text says what became of it. Nothing was changed.
    """
    return _answer(record, hold, Resolution.FROM_SCRATCH, None, who, note)


def reopen(record: Record, *, who: str, note: str = "") -> LineageState:
    """Take a job up again that is over. It holds first; nothing runs before a person has said how to go on.

    Args:
        record: the lineage's.
        who: the person.
        note: why, for the record.

    Raises:
        LineageError: it is open, or it ended in a way after which nothing is left to be done, or its total deadline
            leaves no time to.
    """
    while True:
        state = record.refresh()
        record.require_writable()
        if state.opened is None:
            raise record.why_not_opened()
        if state.finished is None:
            raise LineageError(f"lineage {record.lineage!r} is not finished; there is nothing to reopen")
        if state.finished.outcome not in REOPENABLE:
            raise LineageError(
                f"lineage {record.lineage!r} is finished ({state.finished.outcome}), which cannot be reopened; "
                "have a new run supersede it, or give that one a lineage name of its own"
            )
        if leaves_no_time(state, record.now()):
            raise LineageError(
                f"lineage {record.lineage!r} has no time left to start anything before its total deadline, which "
                "nothing moves; have a new run supersede it, which has a deadline of its own"
            )
        try:
            reopened = record.append(Reopened(who=who, after=state.finished.outcome, note=note))
        except Exists:
            continue
        return _hold_at_once(record, reopened)


def _hold_at_once(record: Record, state: LineageState) -> LineageState:
    """Open the hold that comes first, so that it can be answered without a supervisor; else the next one does it."""
    if state.at is None:
        return state
    due = next_step(state, state.at, Capabilities(scheduler="", requeue=False, time_limit=False))
    if isinstance(due, Append) and isinstance(due.fact, HoldOpened):
        with contextlib.suppress(Exists):
            return record.append(due.fact, due.generation)
    return record.refresh()


def _answer(
    record: Record,
    hold: str | None,
    resolution: Resolution,
    base: str | None,
    who: str,
    note: str,
    carrier: str | None = None,
) -> LineageState:
    """Append a person's word right behind what was read. Whoever is second is told of the first one's answer."""
    while True:
        state = record.refresh()
        record.require_writable()
        waiting = awaiting(state)
        if carrier is not None and state.carried_by != carrier:
            raise LineageError(f"lineage {record.lineage!r} is carried by {state.carried_by} now, and not by {carrier}")
        if hold is None:
            if waiting is None:
                raise LineageError(f"lineage {record.lineage!r} is not held; there is nothing to answer")
            hold = waiting.hold
        lift = HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=resolution, base=base, who=who, note=note)
        fact: HoldLifted | StopRequested = lift
        if waiting is None or waiting.hold != hold:
            if resolution is not Resolution.STOP or not _signal_was_faster(record, hold) or state.finished is not None:
                raise LineageError(_what_became_of(record, hold, waiting, resolution))
            fact = StopRequested(intent="abandon", who=who, note=note)
        try:
            return record.append(fact)
        except Exists:
            continue


def _lifts_of(record: Record, hold: str) -> list[HoldLifted]:
    facts = (entry.fact for entry in record.entries())
    return [fact for fact in facts if isinstance(fact, HoldLifted) and fact.hold == hold]


def _signal_was_faster(record: Record, hold: str) -> bool:
    """Whether nobody but the site has answered a hold; then a person's stop is about the job that goes on."""
    lifts = _lifts_of(record, hold)
    return bool(lifts) and all(lift.lifted_by is LiftedBy.SIGNAL for lift in lifts)


def _what_became_of(record: Record, hold: str, waiting: HoldOpened | None, asked: Resolution) -> str:
    lifts = _lifts_of(record, hold)
    now = f"; what waits for an answer now is {waiting.hold}: {waiting.why}" if waiting is not None else ""
    if not lifts:
        known = any(isinstance(entry.fact, HoldOpened) and entry.fact.hold == hold for entry in record.entries())
        what = "is over" if known else "is none of this lineage"
        return f"hold {hold!r} of {record.lineage!r} {what}{now}"
    last = lifts[-1]
    by = f"{last.who or 'a person'}" if last.lifted_by is LiftedBy.PERSON else f"the {last.lifted_by}"
    same = " already" if last.resolution is asked else ""
    return f"hold {hold!r} of {record.lineage!r} was answered{same}, by {by}: {_WORDS[last.resolution]}{now}"
