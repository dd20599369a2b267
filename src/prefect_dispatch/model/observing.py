"""From an observation to what is new in it. Pure."""

from __future__ import annotations

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.epoch import MAX_RESTART
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Observed
from prefect_dispatch.model.observation import EndedRestart, ObjectState, Observation
from prefect_dispatch.model.state import SubmissionState

MAX_UNSEEN_RESTARTS = 1000
"""More restarts between two polls than this are taken for a wrong answer."""


def news(submission: SubmissionState, observation: Observation) -> tuple[Observed | EndedRestart, ...]:
    """Say what an observation tells that the record does not know.

    Restarts that ended unseen between two polls each come out, in order: as the scheduler's accounting has them, else
    as preempted with evidence ``unobserved``. While an object is ending, its restart count may already be the next
    run's, so a count that the record has not seen is not believed then.

    Args:
        submission: what the record knows.
        observation: the scheduler's answer for its object.

    Raises:
        SchedulerError: the answer contradicts itself or the record.
    """
    newest = submission.newest
    if observation.state is ObjectState.UNKNOWN:
        return _unknown(submission, observation)
    current = observation.restart
    first = newest.restart if newest is not None else 0
    if observation.state is ObjectState.ENDING:
        current = min(current, first)
    if current < first:
        return ()
    if current - first > MAX_UNSEEN_RESTARTS or current > MAX_RESTART:
        raise SchedulerError(
            f"object {submission.object} says restart {current} after {first}: more than {MAX_UNSEEN_RESTARTS} at once"
        )
    known = {execution.restart for execution in submission.executions if execution.ended is not None}
    told = {ended.restart: ended for ended in observation.ended}
    found: list[Observed | EndedRestart] = [
        told.get(restart, _unobserved(restart)) for restart in range(first, current) if restart not in known
    ]
    if current in known:
        return tuple(found)
    if observation.state is ObjectState.ENDED:
        if current not in told:
            raise SchedulerError(
                f"object {submission.object} is said to have ended, but not how: {observation.evidence}"
            )
        return (*found, told[current])
    seen = newest if newest is not None and newest.restart == current else None
    if seen is None or seen.state is not observation.state or (observation.nodes and seen.nodes != observation.nodes):
        found.append(
            Observed(
                n=submission.n,
                restart=current,
                state=observation.state,
                nodes=observation.nodes,
                started_at=observation.started_at,
                evidence=observation.evidence,
            )
        )
    return tuple(found)


def vanished(submission: SubmissionState) -> tuple[EndedRestart, ...]:
    """What it tells that two full answers, a bound apart, do not know the object: nothing, if its end is known."""
    newest = submission.newest
    if newest is not None and newest.ended is not None:
        return ()
    restart = newest.restart if newest is not None else 0
    evidence = "two full answers do not know the object"
    return (EndedRestart(restart=restart, cause=Cause.VANISHED, evidence=evidence),)


def _unknown(submission: SubmissionState, observation: Observation) -> tuple[Observed, ...]:
    newest = submission.newest
    if newest is not None and (newest.ended is not None or newest.state is ObjectState.UNKNOWN):
        return ()
    restart = newest.restart if newest is not None else 0
    return (Observed(n=submission.n, restart=restart, state=ObjectState.UNKNOWN, evidence=observation.evidence),)


def _unobserved(restart: int) -> EndedRestart:
    return EndedRestart(restart=restart, cause=Cause.PREEMPTED, evidence="unobserved")
