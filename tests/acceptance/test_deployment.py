"""The deployment: a run started from nothing but its parameters, carried by a real worker."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Scheduled

from prefect_dispatch.tasks.events import EventName

TREE = Path(__file__).resolve().parents[2]
DEPLOYMENTS = TREE / "deployments" / "prefect.yaml"
README = TREE / "README.md"


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


def deploy(operator) -> None:
    prefect(operator, "work-pool", "create", "--type", "process", "local-processes", "--overwrite")
    prefect(operator, "--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS), "--all")


def first_job() -> dict[str, Any]:
    """The job of the README, as a person would fill it in."""
    (text,) = re.findall(r"```yaml\n(lineage: first.*?)```", README.read_text(), re.S)
    job: dict[str, Any] = yaml.safe_load(text)
    return job


def test_the_form_takes_what_the_command_line_takes(operator):
    # given
    deploy(operator)
    wide = {
        "lineage": operator.lineage,
        "command": ["python", "train.py", "--epochs", 40],
        "recovery": {"vanished": {"action": "resubmit", "budget": 2, "delay": 30}, "final_exit_codes": [3]},
        "watch_interval": 2,
        "shared_checkpoint": False,
    }

    async def ask(job: dict[str, Any]) -> str:
        """Have the server check a run's parameters, for a time that never comes."""
        async with get_client() as client:
            deployment = await client.read_deployment_by_name("supervise/supervise")
            later = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(days=365))
            try:
                run = await client.create_flow_run_from_deployment(deployment.id, parameters={"job": job}, state=later)
            except PrefectHTTPStatusError as error:
                return error.response.text
            await client.delete_flow_run(run.id)
            return "taken"

    # when
    misspelt = {**wide, "recovery": {"premepted": {"action": "hold"}}}
    answers = [operator.ask(lambda job=job: ask(job)) for job in (first_job(), wide, misspelt)]
    # then
    assert answers[:2] == ["taken", "taken"]
    assert "premepted" in answers[2]


def test_a_run_of_the_deployment_carries_a_job_to_its_end(operator):
    # given a job whose lineage is that of the day, as for a schedule
    deploy(operator)
    job = {
        "lineage": "nightly-{date}",
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
    operator.lineage = f"nightly-{run.expected_start_time.astimezone(UTC).date()}"
    assert run.name == f"supervise-{operator.lineage}"
    assert run.state.type == "COMPLETED", run.state.message
    assert operator.carriers() == [run_id]
    assert operator.state().finished.outcome == "succeeded"


@pytest.mark.parametrize("poller", ["poll-cessation", "reconcile"])
def test_a_poller_is_deployed_to_run_every_minute_one_at_a_time(operator, poller):
    # given
    prefect(operator, "work-pool", "create", "--type", "process", "local-processes", "--overwrite")
    prefect(operator, "--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS), "--name", poller)

    async def read() -> Any:
        async with get_client() as client:
            deployment = await client.read_deployment_by_name(f"{poller}/{poller}")
            for schedule in deployment.schedules:
                await client.update_deployment_schedule(deployment.id, schedule.id, active=False)
            return deployment

    # when
    deployment = operator.ask(read)
    # then
    assert [each.schedule.interval.total_seconds() for each in deployment.schedules] == [60]
    assert deployment.global_concurrency_limit.limit == 1
    assert deployment.concurrency_options.collision_strategy == "CANCEL_NEW"
    assert "housekeeping" in deployment.tags


def test_the_example_automation_is_one_that_prefect_takes(operator):
    example = DEPLOYMENTS.with_name("automation-held.yaml")
    automation = AutomationCore.model_validate(yaml.safe_load(example.read_text()))
    assert set(automation.trigger.expect) == {EventName.HOLD_OPENED.value}
    prefect(operator, "automation", "create", "--from-file", str(example))
