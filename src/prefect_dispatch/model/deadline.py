"""The total deadline as a record tells it, for a supervisor that may not see the root; the helper's document counts."""

from __future__ import annotations

from datetime import datetime, timedelta

from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.model.spec import DeadlineSpec, Resources
from prefect_dispatch.model.state import LineageState

LIMIT_GRACE = timedelta(minutes=1)
"""How much longer than what is left a scheduler's time limit is: the helper ends the program in time and publishes what
it saved, and a scheduler that was faster would cut off both. The limit is for a helper that does not."""


def began_at(state: LineageState) -> datetime | None:
    """When the time of the current generation began: at its opening, or when its first execution began to run.

    A scheduler's clock may be wrong; no execution began before its submission was recorded.

    Returns:
        When; None where it has not, as far as the record tells.
    """
    spec = _spec(state)
    if spec is None:
        return None
    if spec.count_queue:
        return state.opened_at
    times = [
        max(each.started_at, submission.at) for submission, each in state.executions if each.started_at is not None
    ]
    return min(times, default=None)


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
    """Whether nothing of the current generation may be started any more: its deadline has passed, or is too near."""
    spec, left = _spec(state), time_left(state, now)
    return spec is not None and left is not None and left <= spec.margin


def terms_of(state: LineageState) -> DeadlineTerms | None:
    """What a submission says of the total deadline; None where there is none."""
    spec = _spec(state)
    if spec is None:
        return None
    queued_since = state.opened_at.timestamp() if spec.count_queue and state.opened_at is not None else None
    now = state.latest_at.timestamp() if state.latest_at is not None else 0.0
    return DeadlineTerms(spec.budget, spec.margin, max(0.0, now), queued_since)


def within_time_left(resources: Resources, left: timedelta | None) -> Resources:
    """The resources of an execution that a scheduler ends soon after the total deadline, if nobody did before."""
    if left is None:
        return resources
    limit = max(timedelta(0), left) + LIMIT_GRACE
    if resources.time_limit is not None and resources.time_limit <= limit:
        return resources
    return resources.model_copy(update={"time_limit": limit})


def _spec(state: LineageState) -> DeadlineSpec | None:
    return state.opened.spec.deadline if state.opened is not None else None
