"""A whole job on a real Slurm, from the command line through Prefect."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefect_dispatch.blocks import SlurmScheduler
from slurm_cluster.bench import PROGRAM
from slurm_cluster.cluster import Cluster
from support.waiting import until


@pytest.fixture
def on_slurm(operator, slurm: Cluster):
    """An operator whose jobs are on the cluster."""
    yield operator
    operator.release()
    for process in operator.started:
        if process.poll() is None:
            process.kill()
    slurm.clear()
    # The operator's own end would ask the local scheduler, which these jobs were never given to.
    operator.objects = list


def test_a_job_that_slurm_preempts_is_carried_to_its_end_by_one_flow_run(on_slurm, slurm, tmp_path: Path):
    # given a block, and a job that runs
    async def save() -> None:
        block = SlurmScheduler(partition="low", options={"exclusive": "true"}, poll_interval=0.5)
        await block.asave("bench-slurm", overwrite=True)

    on_slurm.ask(save)
    on_slurm.write_job(PROGRAM, scheduler="slurm-scheduler/bench-slurm")
    submit = on_slurm.start("submit", str(on_slurm.job_file), "--wait", PATH=slurm.path)
    until((on_slurm.folder / "begun-0-1").exists, "it runs", 120)
    (submission,) = on_slurm.state().submissions
    job = submission.object.id
    # when it is preempted
    node = slurm.run("squeue", "-h", "-j", job, "-o", "%N")
    slurm.job_on(node, "high", "#!/bin/sh\nexec sleep 1\n")
    # then it runs again from its last save
    until((on_slurm.folder / "begun-1-3").exists, "it runs again", 120)
    on_slurm.release()
    done = on_slurm.finish(submit)
    assert done.returncode == 0, done.stderr
    assert [(fact.restart, fact.cause.value) for fact in on_slurm.facts("ended")] == [
        (0, "preempted"),
        (1, "completed"),
    ]
    # and the flow run tells of both as tries of one task
    (carrier,) = on_slurm.carriers()
    (execute,) = on_slurm.task_runs(carrier)
    assert execute.run_count == 2 and execute.state.is_completed()
