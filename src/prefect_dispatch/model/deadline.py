"""The total deadline as a record tells it, for a supervisor that may not see the root; the helper's document counts."""

from __future__ import annotations

from datetime import datetime, timedelta

from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.state import LineageState


def began_at(state: LineageState) -> datetime | None:
    """When the time of the current generation began: at its opening, or when its first execution began to run.

    A scheduler's clock may be wrong; no execution began before its submission was recorded.

    Returns:
        When; None where it has not, as far as the record tells.
    """
    if state.opened is None or state.opened.spec.deadline is None:
        return None
    if state.opened.spec.deadline.count_queue:
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
    if state.opened is None or state.opened.spec.deadline is None:
        return None
    began = began_at(state)
    budget = state.opened.spec.deadline.budget
    return budget if began is None else began + budget - max(now, state.latest or now)


def is_over(state: LineageState, now: datetime) -> bool:
    """Whether nothing of the current generation may be started any more: its deadline has passed, or is too near."""
    left = time_left(state, now)
    return left is not None and left <= _margin(state)


def terms_of(state: LineageState) -> DeadlineTerms | None:
    """What a submission says of the total deadline; None where there is none."""
    if state.opened is None or state.opened.spec.deadline is None:
        return None
    spec = state.opened.spec.deadline
    queued_since = state.opened_at.timestamp() if spec.count_queue and state.opened_at is not None else None
    now = state.latest.timestamp() if state.latest is not None else 0.0
    return DeadlineTerms(spec.budget, spec.margin, max(0.0, now), queued_since)


def limited(resources: Resources, left: timedelta | None) -> Resources:
    """The resources of an execution whose time limit is no longer than what is left."""
    if left is None or (resources.time_limit is not None and resources.time_limit <= left):
        return resources
    return resources.model_copy(update={"time_limit": max(timedelta(seconds=1), left)})


def _margin(state: LineageState) -> timedelta:
    if state.opened is None or state.opened.spec.deadline is None:
        return timedelta(0)
    return state.opened.spec.deadline.margin
