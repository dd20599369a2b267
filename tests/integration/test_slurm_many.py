"""Many jobs of one process on a real Slurm cost it one look per interval."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.schedulers.slurm.commands import Commands
from prefect_dispatch.schedulers.slurm.scheduler import Site, SlurmScheduler
from prefect_dispatch.schedulers.slurm.view import View
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import drive
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.plain_opening import plain_opening
from slurm_cluster.cluster import Cluster
from support.full_form import FULL

JOBS = 1000 if FULL else 60
INTERVAL = timedelta(seconds=5 if FULL else 2)
INTERVALS = 6
AT_ONCE = 16
"""So many are submitted side by side; each ``sbatch`` has a minute."""
COUNTER = """#!/bin/bash
for word in "$@"; do
    case $word in squeue | sacct | sbatch | scontrol | scancel) echo "$word" >>"$0.calls"; break ;; esac
done
exec "$@"
"""


@pytest.mark.timeout(1200 if FULL else 300)
async def test_many_queued_jobs_cost_one_squeue_per_interval(slurm: Cluster, tmp_path: Path) -> None:
    # given jobs that wait for their time, each with a record and a supervisor of its own
    counter = tmp_path / "counter"
    counter.write_text(COUNTER)
    counter.chmod(0o755)
    commands = Commands((str(counter),), timedelta(seconds=60))
    site = Site(commands=commands, log_folder=tmp_path, poll_interval=INTERVAL, history=timedelta(days=1))
    view = View(commands, INTERVAL, site.history)
    clock, turn = SystemClock(), asyncio.Semaphore(AT_ONCE)

    def calls(command: str) -> list[str]:
        return [line for line in (tmp_path / "counter.calls").read_text().splitlines() if line == command]

    def supervisor_of(number: int) -> Supervisor:
        scheduler = SlurmScheduler(site, view)
        lineage = f"job-{number}"
        store = MemoryStore()
        resources = {"options": {"partition": "normal", "begin": "now+1hour"}}
        opening = plain_opening(scheduler.capabilities, root_visible=False, lineage=lineage, resources=resources)
        record = Record(store, store.ledger("open"), lineage, clock)
        record.append(opening)
        return Supervisor(record, scheduler, None, clock)

    supervisors = [supervisor_of(number) for number in range(JOBS)]

    async def submit(supervisor: Supervisor) -> None:
        async with turn:
            while (newest := (await supervisor.advance()).state.newest) is None or newest.object is None:
                await asyncio.sleep(0.05)

    await asyncio.gather(*(submit(supervisor) for supervisor in supervisors))
    assert len(calls("sbatch")) == JOBS
    queued = slurm.run("squeue", "-h", "-r", "-t", "PENDING", "-o", "%i").splitlines()
    assert len(queued) == JOBS
    # when all of them are looked after
    looks: list[int] = []

    async def carry(supervisor: Supervisor) -> None:
        async def count(_: object) -> None:
            looks.append(1)

        await drive(supervisor, carrier=None, after_each=count)

    carried = [asyncio.create_task(carry(supervisor)) for supervisor in supervisors]
    await asyncio.sleep(INTERVAL.total_seconds())
    before, began = len(calls("squeue")), time.monotonic()
    looks.clear()
    await asyncio.sleep(INTERVALS * INTERVAL.total_seconds())
    intervals = (time.monotonic() - began) / INTERVAL.total_seconds()
    asked = len(calls("squeue")) - before
    for task in carried:
        task.cancel()
    ends = await asyncio.gather(*carried, return_exceptions=True)
    # then each was looked at again and again, at one squeue per interval, and at nothing else
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends[0]
    assert len(looks) >= JOBS * INTERVALS / 3
    assert 1 <= asked <= intervals + 2, (asked, intervals)
    assert calls("sacct") == [] and len(calls("sbatch")) == JOBS
    states = [(await supervisor.advance()).state.newest for supervisor in supervisors[:3]]
    assert all(newest.newest.state is ObjectState.QUEUED for newest in states)
