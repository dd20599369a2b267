"""One store and one job on the cluster, carried by the test itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.model.facts import Ended, Finished
from prefect_dispatch.model.observation import ObjectState, Observation
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from slurm_cluster.cluster import Cluster

PROGRAM = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
source = os.environ["DISPATCH_RESUME_FROM"]
step = int(pathlib.Path(source, ".complete").read_text()) if source else 0
def save():
    global step
    step += 1
    place = folder / f"save-{step}"
    place.mkdir()
    (place / ".complete").write_text(str(step))
def leave(*_):
    save()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
save()
pathlib.Path(f"begun-{os.environ['DISPATCH_ATTEMPT'][-1]}-{step}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
sys.exit(int(os.environ.get("CODE", "0")))
"""
"""Saves a step at its start, goes on until the file ``go`` is there, and saves another step when it is asked to end."""
PATIENCE = 100.0


class SlurmBench:
    """A job of the lineage ``digits``, and what a person sees of it.

    Args:
        cluster: the cluster.
        folder: an empty folder.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder / "a folder, 100% [x] 'q'"
        self.folder.mkdir()
        self.root = str(self.folder / "runs")
        self.record: Any = None

    def open(self, program: str = PROGRAM, scheduler: dict[str, Any] | None = None, **fields: Any) -> None:
        """Open the lineage with a job, which nobody carries yet."""
        (self.folder / "program.py").write_text(program)
        path = self.folder / "job.yaml"
        settings = {
            "type": "slurm",
            "partition": "low",
            "options": {"exclusive": "true"},
            "log_folder": "logs",
            "poll_interval": "300ms",
            "landing_bound": "5s",
            "restart_bound": "3s",
            "history": "1d",
        }
        spec = {
            "lineage": "digits",
            "command": ["python", "program.py"],
            "store": {"root": "runs"},
            "scheduler": {**settings, **(scheduler or {})},
            "saves": {"kind": "marker", "marker": ".complete"},
            "watch_interval": "100ms",
            **fields,
        }
        path.write_text(yaml.safe_dump(spec))
        job = resolve_job(path)
        self.record = open_record(job.record_root, "digits", SystemClock())
        open_lineage(self.record, job, plan_of(job))

    def advance_until(self, condition: Callable[[LineageState], Any], patience: float = PATIENCE) -> LineageState:
        """Carry the lineage until something is so."""

        async def go() -> LineageState:
            supervisor = supervisor_of(self.record, self.record.refresh(), SystemClock())
            give_up = time.monotonic() + patience
            while not condition(state := (await supervisor.advance()).state):
                assert time.monotonic() < give_up, [entry.fact for entry in self.record.entries()]
                await asyncio.sleep(0.1)
            return state

        return asyncio.run(go())

    def running(self, n: int, restart: int, step: int) -> str:
        """Wait until an execution runs and has saved; its job id."""

        def runs(state: LineageState) -> bool:
            newest = state.newest
            return (
                newest is not None
                and newest.n == n
                and newest.newest is not None
                and (newest.newest.restart, newest.newest.state) == (restart, ObjectState.RUNNING)
                and (self.folder / f"begun-{restart}-{step}").exists()
            )

        state = self.advance_until(runs)
        assert state.newest is not None and state.newest.object is not None
        return state.newest.object.id

    def finish(self) -> Finished:
        """Let the program go on, and the job come to its end."""
        (self.folder / "go").touch()
        return self.end()

    def end(self, patience: float = PATIENCE) -> Finished:
        """Carry the lineage to its end."""
        state = self.advance_until(lambda state: state.finished is not None, patience)
        assert state.finished is not None
        return state.finished

    def look(self) -> Observation:
        """What the scheduler says of the newest object."""
        supervisor = supervisor_of(self.record, state := self.record.refresh(), SystemClock())
        assert state.newest is not None and state.newest.object is not None
        (observation,) = asyncio.run(supervisor.scheduler.observe([state.newest.object])).values()
        return observation

    def preempt(self, id: str) -> None:
        """Have the node of a job taken by one of a partition that goes first, for a short while."""
        node = self.cluster.run("squeue", "-h", "-j", id, "-o", "%N")
        self.cluster.job_on(node, "high", "#!/bin/sh\nexec sleep 1\n")

    def facts(self, kind: str) -> list[Any]:
        """The facts of a kind."""
        return [entry.fact for entry in self.record.entries() if entry.fact.kind == kind]

    def ends(self) -> list[tuple[int, int, str]]:
        """How each execution ended: n, restart, cause."""
        ended: list[Ended] = self.facts("ended")
        return [(fact.n, fact.restart, fact.cause.value) for fact in ended]

    def jobs(self) -> set[str]:
        """The names of all jobs that the cluster has had of this lineage."""
        kept = self.cluster.run("sacct", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobName").splitlines()
        queued = self.cluster.run("squeue", "-h", "-t", "all", "-O", "Name:|").splitlines()
        tokens = {fact.token for fact in self.facts("submitting")}
        return {name for each in (*kept, *queued) if (name := each.rstrip("|")).rpartition(".")[2] in tokens}
