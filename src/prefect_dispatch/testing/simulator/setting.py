"""The setting of one simulation: what its world is like, drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING, Shape

PLAIN = Shape(
    capabilities=Capabilities(scheduler="plain", requeue=True, time_limit=True),
    ending_for=timedelta(seconds=5),
    linger=timedelta(seconds=120),
    purge_after=None,
)
"""A scheduler that runs an object again only when it is told to."""
EAGER = replace(
    SLURM,
    restart_delay=timedelta(0),
    linger=timedelta(seconds=300),
    node_lost_after=timedelta(seconds=60),
    purge_after=timedelta(seconds=600),
)
"""Slurm in a hurry: an object runs again at once, while its old processes go on for minutes."""
SHAPES = (SLURM, SLURM, SLURM_WITHOUT_ACCOUNTING, KUBERNETES, PLAIN, EAGER, EAGER, EAGER)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How often what goes wrong, and what the job is. Rates are chances for each call unless told otherwise.

    Attributes:
        shape: how the scheduler treats its objects.
        supervisors: how many processes advance the lineage.
        loyalty: how likely an actor goes on where another one could.
        stall: that an actor stands still for a while where it is parked.
        store_failure: that a supervisor's or person's store fails without an effect.
        lost_reply: that it fails after its effect.
        job_failure: that the store of an execution fails, before or after its effect.
        scheduler_failure: that the scheduler cannot be asked.
        lost_answer: that it does what it is told and the answer is lost.
        odd_landing: that a submission lands late, after an error or a hang, or is refused.
        very_late: that an odd landing comes after every bound.
        skew: how many seconds the wall clocks may be apart.
        event_every: seconds between two events of the world, on average.
        person_every: seconds between two looks of a person, on average.
        chaos: seconds until the quiet begins.
        steps: how many steps the program has to make.
        pace: how many seconds each step takes.
        snapshots: whether saves are published as copies.
        program_failure: that a step of the program fails.
        root_visible: whether supervisors see the checkpoint root.
        root_prepared: whether the root was made at the opening.
        snapshot_every: facts between two snapshots of the fold.
        slots: how many objects run at a time.
        spec: the job's fields.
        supersedes: that a person who looks in supersedes the job.
        next_spec: the fields of the job that takes its place.
    """

    shape: Shape
    supervisors: int
    loyalty: float
    stall: float
    store_failure: float
    lost_reply: float
    job_failure: float
    scheduler_failure: float
    lost_answer: float
    odd_landing: float
    very_late: float
    skew: float
    event_every: float
    person_every: float
    chaos: float
    steps: int
    pace: float
    snapshots: bool
    program_failure: float
    root_visible: bool
    root_prepared: bool
    snapshot_every: int
    slots: int
    spec: dict[str, Any]
    supersedes: float = 0.0
    next_spec: dict[str, Any] = field(default_factory=dict)


def draw_setting(random: Random) -> Setting:
    """Draw a setting. Each kind of trouble is absent in some, rare in some and frequent in some."""

    def rate(*choices: float) -> float:
        return random.choice(choices)

    return Setting(
        shape=_impatient(random.choice(SHAPES), timedelta(seconds=rate(60.0, 300.0, 3600.0))),
        supervisors=random.choice((2, 2, 3)),
        loyalty=rate(0.0, 0.3, 0.6, 0.9),
        stall=rate(0.0, 0.001, 0.005, 0.02),
        store_failure=rate(0.0, 0.0, 0.005, 0.03),
        lost_reply=rate(0.0, 0.0, 0.01, 0.05),
        job_failure=rate(0.0, 0.0, 0.002, 0.01),
        scheduler_failure=rate(0.0, 0.0, 0.05, 0.3),
        lost_answer=rate(0.0, 0.0, 0.05, 0.3),
        odd_landing=rate(0.0, 0.2, 0.5, 0.9),
        very_late=rate(0.0, 0.0, 0.3),
        skew=rate(0.0, 29.0, 300.0, 20000.0),
        event_every=rate(15.0, 30.0, 60.0),
        person_every=rate(40.0, 100.0, 400.0),
        chaos=rate(600.0, 1200.0, 2400.0),
        steps=random.choice((4, 8, 16)),
        pace=rate(15.0, 30.0),
        snapshots=random.random() < 0.3,
        program_failure=rate(0.0, 0.0, 0.05, 0.2),
        root_visible=random.random() < 0.8,
        root_prepared=random.random() < 0.7,
        snapshot_every=random.choice((5, 17, 64)),
        slots=random.choice((1, 2, 3, 3)),
        spec=_draw_spec(random),
    )


def draw_supersessions(setting: Setting, random: Random) -> Setting:
    """Draw whether and how the job is superseded, from chance of its own: the other settings stay what they are."""
    return replace(setting, supersedes=random.choice((0.0, 0.0, 0.1, 0.4)), next_spec=_draw_spec(random))


def _impatient(shape: Shape, unknown_bound: timedelta) -> Shape:
    return replace(shape, capabilities=shape.capabilities.model_copy(update={"unknown_bound": unknown_bound}))


def _draw_spec(random: Random) -> dict[str, Any]:
    def rule(*actions: str) -> dict[str, Any]:
        action = random.choice(actions)
        if action not in ("requeue", "resubmit"):
            return {"action": action}
        delay = random.choice((0, 0, 0, 20, 60))
        return {"action": action, "budget": random.choice((1, 2, 4, 30)), "delay": delay}

    recovery: dict[str, Any] = {
        "preempted": rule("requeue", "requeue", "requeue", "resubmit"),
        "node_lost": rule("requeue", "requeue", "requeue", "resubmit", "hold"),
        "timed_out": rule("resubmit", "requeue"),
        "launch_failed": rule("resubmit"),
        "vanished": rule("resubmit", "resubmit", "hold"),
        "failed": rule("resubmit", "requeue", "hold", "fail"),
        "duplicate": rule("hold", "resubmit"),
        "unpublishable": rule("hold", "resubmit"),
        "no_progress": random.choice((None, None, 1, 2, 3)),
    }
    resources = {"time_limit": random.choice((100, 200))} if random.random() < 0.2 else {}
    return {
        "lineage": "digits",
        "command": ["python", "train.py"],
        "recovery": recovery,
        "resources": resources,
        "saves": {"kind": "explicit"},
        "max_pending": random.choice((None, None, None, 300)),
        "shared_checkpoint": random.random() < 0.25,
        "hold_for": random.choice((None, None, 100, 300)),
        "checkpoint_cancelation": {"mode": "notify_then_terminate", "notify_period": random.choice((10, 30))},
    }
