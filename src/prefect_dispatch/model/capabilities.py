"""What a scheduler can do, as far as planning needs to know."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field


class Capabilities(BaseModel):
    """What a scheduler can do.

    Every bound is waited for by the waiting process's own monotonic clock.

    Attributes:
        scheduler: its kind, such as ``local``.
        requeue: whether it can run the same object again, by itself or on request, with a restart count that can be
            relied on. Without it every requeue becomes a resubmission.
        time_limit: whether it enforces a time limit.
        nodes: the most nodes that one object can have; None for no limit.
        landing_bound: how long after a submit call has ended its object may still turn up.
        restart_bound: how long after an end the scheduler's own restart is waited for.
        observe_bound: how far apart two full answers without the object must be for it to count as vanished.
        unknown_bound: for how long an object's state may stay unknown before a person is told.
        submit_bound: how long one submit call may take before it is killed.
        poll_interval: how often it is asked.
        clock_skew: how far the clocks of two supervisors of this scheduler may be apart.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str
    requeue: bool
    time_limit: bool
    nodes: int | None = None
    landing_bound: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(0))
    restart_bound: timedelta = Field(default=timedelta(minutes=5), ge=timedelta(0))
    observe_bound: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(0))
    unknown_bound: timedelta = Field(default=timedelta(hours=1), ge=timedelta(0))
    submit_bound: timedelta = Field(default=timedelta(seconds=60), gt=timedelta(0))
    poll_interval: timedelta = Field(default=timedelta(seconds=30), gt=timedelta(0))
    clock_skew: timedelta = Field(default=timedelta(seconds=30), ge=timedelta(0))
