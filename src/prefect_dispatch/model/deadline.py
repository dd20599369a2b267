"""The total deadline as a record tells it, for a supervisor that may not see the root; the helper's document counts."""

from __future__ import annotations

from datetime import datetime, timedelta

from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.spec import DeadlineSpec, Resources
from prefect_dispatch.model.state import Execution, LineageState, SubmissionState

LIMIT_GRACE = timedelta(minutes=1)
"""How much longer than what is left a scheduler's time limit is: the helper ends the program in time and publishes what
it saved, and a scheduler that was faster would cut off both. The limit is for a helper that does not."""


def began_at(state: LineageState) -> datetime | None:
    """When the time of the current generation began: at its opening, or when its first execution began to run.

    Where the record tells less than the root, it is rather too late than too early: the helper's document counts, and
    a job that has time left must not be ended.

    Returns:
        When; None where it has not, as far as the record tells.
    """
    spec = _spec(state)
    if spec is None:
        return None
    if spec.count_queue:
        return state.opened_at
    return min(filter(None, (_claimed_by(submission, each) for submission, each in state.executions)), default=None)


def time_left(state: LineageState, now: datetime) -> timedelta | None:
    """How much of its time the current generation has left: all of it before that began, less than nothing afterwards.

    Args:
        state: what the record folds to.
        now: the supervisor's clock; a time that was recorded counts where it is greater.

    Returns:
        How much; None where there is no total deadline.
    """
    spec, began = _spec(state), began_at(state)
    if spec is None or began is None:
        return None if spec is None else spec.budget
    return began + spec.budget - max(now, state.latest_at or now)


def leaves_no_time(state: LineageState, now: datetime) -> bool:
    """Whether nothing of the current generation may be started any more: its deadline has passed, or is too near.

    A helper that has said so, who sees the root, is believed.
    """
    spec, left = _spec(state), time_left(state, now)
    if spec is None or left is None:
        return False
    told = any(each.ended is not None and each.ended.cause is Cause.DEADLINE for _, each in state.executions)
    return told or left <= spec.margin


def terms_of(state: LineageState) -> DeadlineTerms | None:
    """What a submission says of the total deadline; None where there is none."""
    spec = _spec(state)
    if spec is None:
        return None
    queued_since = state.opened_at.timestamp() if spec.count_queue and state.opened_at is not None else None
    now = state.latest_at.timestamp() if state.latest_at is not None else 0.0
    return DeadlineTerms(spec.budget, spec.margin, max(0.0, now), queued_since)


def within_time_left(resources: Resources, left: timedelta | None) -> Resources:
    """The resources of an execution that a scheduler ends soon after the total deadline, if nobody did before.

    One without a time limit of its own gets none: a partition may have a shorter one, and Slurm lets what asks for more
    wait for ever (sbatch(1), ``--time``).
    """
    if left is None or resources.time_limit is None:
        return resources
    limit = max(timedelta(0), left) + LIMIT_GRACE
    return resources.model_copy(update={"time_limit": min(limit, resources.time_limit)})


def _claimed_by(submission: SubmissionState, execution: Execution) -> datetime | None:
    """By when an execution had claimed, at the latest; None where nothing tells that it has.

    A scheduler's clock may be wrong; no execution began before its submission was recorded. One that nobody saw running
    began before it ended, if a node or an exit of it is known; one that could not be launched may never have claimed.
    """
    ended = execution.ended
    if ended is not None and ended.cause is Cause.LAUNCH_FAILED:
        return None
    ran = ended is not None and (ended.exit is not None or bool(ended.nodes))
    at = execution.started_at or (execution.ended_at if ran else None)
    return None if at is None else max(at, submission.at)


def _spec(state: LineageState) -> DeadlineSpec | None:
    return state.opened.spec.deadline if state.opened is not None else None
