"""Holds over what only a person can account for: a submission without an object, an object without a state."""

from __future__ import annotations

from datetime import timedelta

from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.model.facts import HoldOpened
from prefect_dispatch.model.state import LineageState, SubmissionState
from prefect_dispatch.model.steps import Append


def ambiguous_hold(state: LineageState, submission: SubmissionState, detail: str) -> Append:
    """The hold for a submission that the scheduler cannot account for. It never expires: its object may still come."""
    why = f"submission {name_of(state, submission)} may have reached the scheduler or not, and it cannot tell: {detail}"
    held = HoldOpened(hold=f"h{state.seq + 1}", why=why, n=submission.n, token=submission.token)
    return Append(fact=held, generation=state.generation)


def is_about_older(state: LineageState) -> bool:
    """Whether the hold that was lifted last is about an older submission than the one that counts.

    Such a word says that the old object is gone, and nothing of what becomes of the newest submission.
    """
    hold, newest = state.lifted_hold, state.newest
    if hold is None or not hold.is_unaccounted:
        return False
    if newest is None:
        return True
    return newest.token != hold.token if hold.token is not None else newest.object != hold.object


def _stops(state: LineageState) -> bool:
    return state.stop is not None and state.stop.intent == "abandon"


def name_of(state: LineageState, submission: SubmissionState) -> str:
    """A submission's number, and its generation where that is not the current one."""
    older = submission.generation != state.generation
    return f"{submission.n} of generation {submission.generation}" if older else f"{submission.n}"


def unknown_hold(state: LineageState, submission: SubmissionState, bound: timedelta, evidence: str) -> Append:
    """The hold for an object whose state has stayed unknown for too long."""
    if submission is state.newest:
        answer = "run it again once it is gone"
    else:
        # Whatever of it is gone, nothing but the newest submission is ever run again.
        answer = "once it is gone, stop the job" if _stops(state) else "once it is gone, run again, to go on behind it"
    why = (
        f"for {describe_duration(bound)} nobody could tell what became of submission {name_of(state, submission)}, "
        f"object {submission.object}: {evidence or 'its state is unknown'}; look there; {answer}"
    )
    held = HoldOpened(
        hold=f"h{state.seq + 1}",
        why=why,
        n=submission.n,
        restart=submission.newest.restart if submission.newest is not None else 0,
        object=submission.object,
        state_unknown=True,
    )
    return Append(fact=held, generation=state.generation)
