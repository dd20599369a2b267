"""Why an execution ended, and what to do about it."""

from __future__ import annotations

import enum


class Cause(enum.StrEnum):
    """Why an execution ended."""

    COMPLETED = "completed"
    """The program's leader exited 0."""
    FAILED = "failed"
    """The program's own exit code or signal."""
    PREEMPTED = "preempted"
    """The scheduler took the capacity away."""
    TIMED_OUT = "timed_out"
    """The scheduler's time limit passed."""
    DEADLINE = "deadline"
    """The job's total deadline passed."""
    NODE_LOST = "node_lost"
    """A node failed or was cut off."""
    OUT_OF_MEMORY = "out_of_memory"
    """It used more memory than it may."""
    STOPPED = "stopped"
    """A person or an admin stopped it."""
    SUSPENDED = "suspended"
    """It was asked to save and exit, and did."""
    LAUNCH_FAILED = "launch_failed"
    """User code never ran."""
    NO_CAPACITY = "no_capacity"
    """It was queued for longer than ``max_pending``."""
    VANISHED = "vanished"
    """The scheduler knows it no longer and never said how it ended."""
    UNUSABLE_CHECKPOINT = "unusable_checkpoint"
    """Saves are published and none of them is whole."""
    IDENTITY_CHANGED = "identity_changed"
    """It would have become a different run."""
    DUPLICATE = "duplicate"
    """Another execution had its epoch, or a later one."""
    UNPUBLISHABLE = "unpublishable"
    """Its saves could not be published."""


class Action(enum.StrEnum):
    """What to do after an execution has ended."""

    REQUEUE = "requeue"
    """The same object again: R + 1."""
    RESUBMIT = "resubmit"
    """A new object: N + 1."""
    HOLD = "hold"
    """Wait for a person."""
    FAIL = "fail"
    """The job ends as failed."""
    FINISH = "finish"
    """The job ends as its cause says. Not for recovery rules of a spec."""


SCHEDULER_RESTARTS = frozenset({Cause.PREEMPTED, Cause.NODE_LOST})
"""The causes after which a scheduler may restart an object by itself (Slurm's ``--requeue``)."""
