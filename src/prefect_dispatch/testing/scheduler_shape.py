"""The shape of a scheduler: how the in-memory one treats objects, with the values of real ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from prefect_dispatch.model.capabilities import Capabilities

NOTHING = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a scheduler treats its objects, where schedulers differ.

    Attributes:
        capabilities: what it says that it can do; its name is among them.
        landing: how long after a submit call its object can be seen.
        ending_for: how long an object that the scheduler ends is ``ending``, its processes alive, before it has ended;
            None for as long as the test wants.
        completing_for: how long an object whose program exited by itself is ``ending``, its processes gone.
        linger: how long processes that the scheduler ended live on after it has said that they ended.
        node_lost_after: how long a node is silent before its objects are given up.
        restarts_by_itself: whether what is preempted or lost runs again by itself, where the object allows it.
        restart_delay: how long an object that is to run again is kept waiting.
        count_rises_while_ending: whether the restart count is the next run's while the old one is still ending.
        keeps_time_limits: whether an object is ended when the time limit of its request has passed.
        purge_after: how long after its end an object is forgotten; None for never.
        accounting: whether something else still answers for what was forgotten.
    """

    capabilities: Capabilities
    landing: timedelta = NOTHING
    ending_for: timedelta | None = NOTHING
    completing_for: timedelta = NOTHING
    linger: timedelta = NOTHING
    node_lost_after: timedelta = NOTHING
    restarts_by_itself: bool = False
    restart_delay: timedelta = NOTHING
    count_rises_while_ending: bool = False
    keeps_time_limits: bool = True
    purge_after: timedelta | None = None
    accounting: bool = False

    @property
    def name(self) -> str:
        """The scheduler's kind."""
        return self.capabilities.scheduler


SLURM = Shape(
    capabilities=Capabilities(scheduler="slurm", requeue=True, time_limit=True),
    ending_for=timedelta(seconds=30),
    linger=timedelta(seconds=60),
    node_lost_after=timedelta(seconds=300),
    restarts_by_itself=True,
    restart_delay=timedelta(seconds=121),
    count_rises_while_ending=True,
    purge_after=timedelta(seconds=300),
    accounting=True,
)
"""Slurm with slurmdbd, as slurm.conf(5) has its defaults."""

SLURM_WITHOUT_ACCOUNTING = replace(SLURM, accounting=False)
"""Slurm whose controller is all there is to ask: five minutes after its end an object was never there."""

KUBERNETES = Shape(
    capabilities=Capabilities(scheduler="kubernetes", requeue=False, time_limit=True, restart_bound=NOTHING),
    ending_for=timedelta(seconds=30),
    node_lost_after=timedelta(seconds=350),
    purge_after=timedelta(hours=1),
)
"""A batch/v1 Job with ``backoffLimit: 0``."""
