"""A job with a total deadline from its opening to its end: real record, scheduler, helper and program."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.cli.job_file import resolve_spec
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.stores.deadline import read_deadline
from prefect_dispatch.stores.opening import open_store
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import JobOver, drive
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record

BEGINS = "import signal, sys, time\nopen('began', 'w').close()\n"
SAVES = f"{BEGINS}signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(600)"
DEAF = f"{BEGINS}signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
PATIENCE = 90.0


async def to_its_end(supervisor: Supervisor) -> JobOver:
    async def look_on(_: object) -> None:
        pass

    async with asyncio.timeout(PATIENCE):
        while True:
            happening = await drive(supervisor, carrier=None, after_each=look_on)
            if isinstance(happening, JobOver):
                return happening


@pytest.mark.parametrize(("program", "timed_out"), [(SAVES, "resubmit"), (DEAF, "fail")])
def test_a_job_that_has_no_more_time_ends_as_deadline_and_is_not_submitted_again(
    tmp_path: Path, program: str, timed_out: str
) -> None:
    # given a job that would run for ten minutes, and has some seconds
    fields: dict[str, Any] = {
        "lineage": "digits",
        "command": [sys.executable, "-c", program],
        "store": {"root": str(tmp_path / "root")},
        "scheduler": {"type": "local", "state_folder": str(tmp_path / "state")},
        "workdir": str(tmp_path),
        "recovery": {
            "failed": {"action": "resubmit", "budget": 9},
            "timed_out": {"action": timed_out, **({"budget": 9} if timed_out == "resubmit" else {})},
        },
        "deadline": {"budget": "16s", "margin": "6s"},
    }
    job = resolve_spec(JobSpec.read(fields, "the job"))
    clock = SystemClock()
    record = open_record(job.record_root, "digits", clock)
    supervisor = supervisor_of(record, open_lineage(record, job, plan_of(job)), clock)
    # when
    happening = asyncio.run(to_its_end(supervisor))
    # then its program began, its helper ended it before its scheduler did, and nothing follows
    assert (tmp_path / "began").exists()
    state = happening.state
    assert state.finished is not None and state.finished.outcome is Outcome.DEADLINE
    ((submission, execution),) = state.executions
    assert submission is state.newest
    ended = execution.ended
    assert ended is not None and ended.cause is Cause.DEADLINE and ended.exit == Exit(code=193)
    assert read_deadline(open_store(str(tmp_path / "root" / "digits")), 0).budget_seconds == 16
