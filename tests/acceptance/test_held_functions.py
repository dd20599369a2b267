"""Held jobs where there is no worker: ``supervise`` called from a program of the user's own, and ``submit``."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

from support.deployed import PROGRAM, patiently

CALLER = """
import asyncio, json, sys
from prefect_dispatch.flows import supervise
from prefect_dispatch.model.spec import JobSpec
state = asyncio.run(supervise(JobSpec.model_validate(json.loads(sys.argv[1])), return_state=True))
print(state.name, state.message)
"""


def call_supervise(operator) -> subprocess.Popen[bytes]:
    job = {
        "lineage": operator.lineage,
        "command": ["python", "program.py"],
        "workdir": str(operator.folder),
        "store": {"root": operator.root},
        "workplace": str(operator.folder / "workplaces"),
        "scheduler": {"type": "local", "state_folder": str(operator.folder / "state"), "linger": "60s"},
        "saves": {"kind": "marker"},
        "watch_interval": "100ms",
        "recovery": {"failed": {"action": "hold"}},
    }
    (operator.folder / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-c", CALLER, json.dumps(job)],
        cwd=operator.folder,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    operator.started.append(process)
    return process


def test_a_function_waits_as_a_process_for_the_form_and_for_the_command_line(operator, deployed):
    # given
    caller = call_supervise(operator)
    (run,) = patiently(operator.carriers_if_any, "the run that carries the job")
    held = deployed.held(run)
    first = operator.state().hold.opened.hold
    # when one hold is answered in the form, and the next by a command that cannot ask Prefect
    assert deployed.resume(run, {})[0] == "REJECT"
    assert deployed.resume(run, {"choice": "run again", "name": "ada"})[0] == "ACCEPT"
    patiently(lambda: len(operator.facts("hold_opened")) == 2 and deployed.run(run).state.name == "Paused", "a hold")
    operator.release()
    lifted = operator.run("resume", "digits", "--run-again", PREFECT_API_URL="http://127.0.0.1:9/api")
    done = operator.finish(caller)
    # then
    assert (held.state.name, held.name) == ("Paused", "digits: held, failed")
    # Prefect would give up after an hour: a hold without an end waits for a year.
    assert held.state.state_details.pause_timeout - held.state.timestamp > timedelta(days=360)
    assert lifted.returncode == 0, lifted.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Completed succeeded"), done.stdout
    assert f"prefect-dispatch resume digits --store {operator.root} --run-again" in done.stderr
    assert f"/runs/flow-run/{run}" in done.stderr
    assert operator.carriers() == [run]
    lifts = operator.facts("hold_lifted")
    assert (lifts[0].hold, lifts[0].who) == (first, "ada, in the Prefect UI")
    assert len(lifts) == 2
    over = deployed.run(run)
    assert (over.state.name, over.name) == ("Completed", "supervise-digits")
    assert "held" not in over.tags
    names = {each.state.name for each in operator.task_runs(run)}
    assert names == {"Held", "Completed"}


def test_a_run_that_is_cancelled_while_its_process_waits_stops_the_job(operator, deployed):
    # given
    caller = call_supervise(operator)
    (run,) = patiently(operator.carriers_if_any, "the run that carries the job")
    deployed.held(run)
    # when
    deployed.cancel(run)
    operator.finish(caller)
    # then
    assert operator.state().finished.outcome == "stopped"
    assert f"flow run {run} was cancelled" in operator.facts("hold_lifted")[0].note


def test_an_api_that_is_away_when_a_job_is_held_is_asked_once_it_is_back(operator, deployed, prefect_server):
    # given a job that comes to its hold while the server is gone
    caller = call_supervise(operator)
    program = "import os, time\nwhile not os.path.exists('on'): time.sleep(0.05)\n" + PROGRAM
    (operator.folder / "program.py").write_text(program)
    patiently(lambda: operator.carriers_if_any() and operator.state().newest, "a submission")
    (run,) = operator.carriers()
    prefect_server.kill()
    (operator.folder / "on").touch()
    patiently(lambda: operator.state().hold is not None, "a hold")
    # when
    prefect_server.start()
    deployed.held(run)
    operator.release()
    assert deployed.resume(run, {"choice": "run again"})[0] == "ACCEPT"
    done = operator.finish(caller)
    # then
    assert done.stdout.startswith("Completed succeeded"), done.stderr
    assert len(operator.facts("hold_opened")) == 1
