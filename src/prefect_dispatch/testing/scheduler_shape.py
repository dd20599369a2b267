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
        earlier_ends: whether the ends of earlier restarts are told beside the current one's.
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
    earlier_ends: bool = True

    @property
    def name(self) -> str:
        """The scheduler's kind."""
        return self.capabilities.scheduler


SLURM = Shape(
    capabilities=Capabilities(scheduler="slurm", requeue=True, time_limit=True),
    ending_for=timedelta(seconds=30),
    linger=timedelta(seconds=60),
    node_lost_after=timedelta(seconds=600),
    restarts_by_itself=True,
    restart_delay=timedelta(seconds=121),
    count_rises_while_ending=True,
    purge_after=timedelta(seconds=300),
    accounting=True,
)
"""Slurm with accounting, ``PreemptMode=REQUEUE`` and otherwise the defaults of slurm.conf(5).

- ``ending_for``: ``KillWait``, the 30 s between SIGTERM and SIGKILL; the job is COMPLETING meanwhile.
- ``linger``: no default, for nothing is meant to live on. It is what ``UnkillableStepTimeout`` (60 s) was made for:
  processes that hang in the kernel and end later than Slurm waits for them.
- ``node_lost_after``: twice ``SlurmdTimeout`` (300 s), measured on a cluster of 22.05.
- ``restart_delay``: a requeued job waits until its old credential has expired, ``cred_expire`` (120 s) and a second.
- ``count_rises_while_ending``: measured on the same cluster; a requeued job is PENDING and COMPLETING at once.
- ``purge_after``: ``MinJobAge`` (300 s); slurmdbd answers on.
"""

SLURM_WITHOUT_ACCOUNTING = replace(SLURM, accounting=False, earlier_ends=False)
"""The same where slurmctld is all there is to ask: it knows how often a job was restarted, but not how those runs
ended, and five minutes after its end a job might never have been."""

KUBERNETES = Shape(
    capabilities=Capabilities(scheduler="kubernetes", requeue=False, time_limit=True, restart_bound=NOTHING),
    ending_for=timedelta(seconds=30),
    node_lost_after=timedelta(seconds=350),
    purge_after=timedelta(hours=1),
)
"""A batch/v1 Job with ``backoffLimit: 0`` and one pod, which is never replaced; there is no count of restarts.

- ``ending_for``: ``terminationGracePeriodSeconds`` is 30 by default; the pod is Terminating meanwhile.
- ``node_lost_after``: 50 s until a node is unreachable (kube-controller-manager's ``--node-monitor-grace-period``; 40 s
  before 1.32), and 300 s that pods tolerate it (the toleration that DefaultTolerationSeconds adds). The containers of
  an unreachable node go on until its kubelet is back.
- ``purge_after``: ``ttlSecondsAfterFinished`` has no default and nothing is purged without it; an hour is an
  adapter's own choice. Nothing answers for a Job that was deleted.
"""
