"""The deployment: a run started from nothing but its parameters, carried by a real worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prefect.client.orchestration import get_client

DEPLOYMENTS = Path(__file__).resolve().parents[2] / "deployments" / "prefect.yaml"


def prefect(operator, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *words],
        cwd=operator.folder,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_run_of_the_deployment_carries_a_job_to_its_end(operator):
    # given
    prefect(operator, "work-pool", "create", "--type", "process", "local-processes", "--overwrite")
    prefect(operator, "--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS), "--all")
    job = {
        "lineage": operator.lineage,
        "command": ["python", "-c", "print('hello from a form')"],
        "workdir": str(operator.folder),
        "store": {"root": operator.root},
        "scheduler": {"type": "local", "state_folder": str(operator.folder / "state")},
    }

    async def start() -> str:
        async with get_client() as client:
            deployment = await client.read_deployment_by_name("supervise/supervise")
            run = await client.create_flow_run_from_deployment(deployment.id, parameters={"job": job})
            return str(run.id)

    run_id = operator.ask(start)
    # when
    prefect(operator, "worker", "start", "--pool", "local-processes", "--run-once", "--install-policy", "never")
    # then
    run = operator.flow_run(run_id)
    assert run.state.type == "COMPLETED", run.state.message
    assert operator.carriers() == [run_id]
    assert operator.state().finished.outcome == "succeeded"
