"""``prefect-dispatch submit``: open a lineage with a job, or go on with it."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from pathlib import Path

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.cli.job_file import read_job
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import Hold, LineageState
from prefect_dispatch.settings import state_folder
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage, owner, run_again
from prefect_dispatch.supervisor.places import open_record

HELD = 75
"""Exit code of a job that is held: try again later, in the words of BSD's sysexits.h."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("job", metavar="JOB", type=Path, help="a job spec in YAML")
    parser.add_argument("--wait", action="store_true", help="stay until the job is over or held; exit 0, 1 or 75")
    parser.add_argument("--run-again", action="store_true", help="lift the hold that the lineage is in")
    parser.add_argument("--note", default="", help="with --run-again: why, for the record")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    job = asyncio.run(resolve(read_job(options.job), Path.cwd()))
    state = _open(job)
    if options.run_again:
        run_again(open_record(job.record_root, job.spec.lineage, SystemClock()), owner(), options.note)
    elif state.hold is not None:
        return _tell_held(job.spec.lineage, state.hold)
    if options.wait:
        return supervise_here(job)
    _supervise_apart(options.job, job)
    return 0


def supervise_here(job: ResolvedJob) -> int:
    """Carry a job in this process until it is over or held."""
    from prefect_dispatch.flows.supervise import carry

    ended = asyncio.run(carry(job.spec))
    state = open_record(job.record_root, job.spec.lineage, SystemClock()).refresh()
    if state.hold is not None:
        return _tell_held(job.spec.lineage, state.hold)
    finished = state.finished
    if finished is None:
        print(f"lineage {job.spec.lineage} is not over: {printable(str(ended.message))}", file=sys.stderr)
        return 1
    print(f"lineage {job.spec.lineage} {finished.outcome}: {finished.detail}")
    return 0 if finished.outcome is Outcome.SUCCEEDED else 1


def _tell_held(lineage: str, hold: Hold) -> int:
    print(f"lineage {lineage} is held: {printable(hold.opened.why)}; to go on, add --run-again", file=sys.stderr)
    return HELD


def _open(job: ResolvedJob) -> LineageState:
    return open_lineage(open_record(job.record_root, job.spec.lineage, SystemClock()), job, plan_of(job))


def _supervise_apart(path: Path, job: ResolvedJob) -> None:
    """Start a process of its own that carries the job; it outlives this terminal."""
    spec: JobSpec = job.spec
    folder = state_folder() / "supervisors"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{spec.lineage}.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect_dispatch.cli", "submit", str(path.absolute()), "--wait"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    print(f"lineage {spec.lineage} is carried by process {process.pid}, which writes to {log}")
    print(f"to watch it: prefect-dispatch status {spec.lineage} --store {job.record_root}")
