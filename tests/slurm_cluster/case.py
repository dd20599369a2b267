"""The conformance suite's world over the real cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.slurm.commands import Commands
from prefect_dispatch.schedulers.slurm.scheduler import Site, SlurmScheduler
from prefect_dispatch.schedulers.slurm.view import View
from prefect_dispatch.testing import plain_wrapper
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scheduler_case import assert_consistent
from slurm_cluster.cluster import NODES, Cluster

WRAPPER = (sys.executable, "-I", plain_wrapper.__file__)
INTERVAL = timedelta(milliseconds=200)
BOUND = 90.0
ANSWERS_WITHIN = timedelta(seconds=10)
SHORT = "#!/bin/sh\nexec sleep 2\n"


class SlurmCase:
    """Two nodes, each for one job at a time, in a partition whose jobs are requeued when they are preempted.

    Args:
        cluster: the cluster.
        folder: where the jobs run.
        partition: the jobs' partition.
        prefix: what Slurm's commands run behind.
    """

    restarts_by_itself = True

    def __init__(self, cluster: Cluster, folder: Path, partition: str = "low", prefix: tuple[str, ...] = ()) -> None:
        self.cluster = cluster
        self.folder = folder
        self.site = Site(
            commands=Commands(prefix, ANSWERS_WITHIN),
            options={"partition": partition, "exclusive": "true"},
            helper=WRAPPER,
            log_folder=folder / "logs",
            poll_interval=INTERVAL,
            history=timedelta(days=1),
        )
        self.scheduler = self.another()

    def another(self) -> SlurmScheduler:
        """See the case: a process of its own would ask for itself."""
        return SlurmScheduler(self.site, View(self.site.commands, INTERVAL, self.site.history))

    def exiting(self, code: int) -> SubmissionRequest:
        """See the case. Slurm requeues on request only what may be requeued."""
        return plain_request(self.folder, "sh", "-c", f"exit {code}", restarts_allowed=True)

    def lasting(self) -> SubmissionRequest:
        """See the case."""
        return plain_request(self.folder, "sleep", "300")

    def impossible(self) -> SubmissionRequest:
        """See the case."""
        return replace(self.lasting(), resources=Resources(memory=2**50))

    async def submit_behind(self) -> ObjectRef:
        """See the case."""
        for _ in range(NODES):
            await self.scheduler.submit(self.lasting())
        return await self.scheduler.submit(self.lasting())

    async def preempt(self, object: ObjectRef) -> None:
        """See the case: a job of a partition that goes first wants the node."""
        (entry,) = self.cluster.run("squeue", "-h", "-j", object.id, "-t", "all", "-o", "%T %N").splitlines() or (
            "GONE ",
        )
        state, _, node = entry.partition(" ")
        if state != "RUNNING":
            return
        self.cluster.job_on(node, "high", SHORT)
        self.cluster.until(
            lambda: self.cluster.run("squeue", "-h", "-j", object.id, "-t", "all", "-o", "%T") != "RUNNING",
            "it is preempted",
        )

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """See the case: the controller does not answer."""
        with self.cluster.stopped("slurmctld"):
            yield

    async def purge(self, object: ObjectRef) -> None:
        """See the case: the controller forgets it by itself, after MinJobAge and a while."""
        self.cluster.until(
            lambda: not self.cluster.run("squeue", "-h", "-j", object.id, "-t", "all", check=False),
            "it is forgotten",
            180.0,
        )

    async def lose_node(self, object: ObjectRef) -> None:
        """See the case: its node loses power, and comes up again once it was missed."""
        node = self.cluster.run("squeue", "-h", "-j", object.id, "-o", "%N")
        self.cluster.kit("poweroff.sh", node)
        self.cluster.until(
            lambda: self.cluster.run("sinfo", "-h", "-n", node, "-p", "normal", "-o", "%T").startswith("down"),
            f"{node} is missed",
        )
        self.cluster.kit("node-start.sh", node)

    async def wait_until(self, object: ObjectRef, state: ObjectState) -> Observation:
        """See the case."""
        give_up = time.monotonic() + BOUND
        while True:
            observation = (await self.scheduler.observe([object]))[object]
            assert_consistent(observation)
            if observation.state is state:
                return observation
            assert time.monotonic() < give_up, f"not within {BOUND}s: {object} is {state}; it is {observation}"
            await asyncio.sleep(INTERVAL.total_seconds())
