"""Flow supervise on a real Prefect server, in processes of its own, with the local scheduler."""

from __future__ import annotations

import base64
import html
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Saves a counter under a marker, tells its progress, and waits for the test's word before it ends.
PROGRAM = """
import os, pathlib, time
n = int(os.environ["DISPATCH_EPOCH"]) // 10**6 % 10**6
source = os.environ["DISPATCH_RESUME_FROM"]
step = int((pathlib.Path(source) / "count").read_text()) if source else 0
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
while True:
    step += 1
    save = folder / f"step-{step}"
    save.mkdir()
    (save / "count").write_text(str(step))
    (save / ".complete").write_text(str(step))
    print(f"openjd_progress: {min(step, 100)}", flush=True)
    print(f"openjd_status: step {step}", flush=True)
    if step % 3 == 0:
        pathlib.Path(f"begun-{n}").touch()
    if os.path.exists("go"):
        break
    time.sleep(0.1)
"""

on_both = pytest.mark.parametrize("operator", ["folder", "bucket"], indirect=True)
on_a_folder = pytest.mark.parametrize("operator", ["folder"], indirect=True)
"""For what becomes of a folder that is renamed; of servers that are away, see tests/chaos/s3."""


@on_both
def test_a_job_that_is_preempted_twice_is_one_flow_run_with_three_tries(operator, wait_until):
    # given
    operator.write_job(PROGRAM)
    submit = operator.start("submit", "job.yaml", "--wait")
    # when
    for n in (1, 2):
        operator.preempt(operator.saved(n))
    operator.running(3)
    operator.release()
    done = operator.finish(submit)
    # then
    assert done.returncode == 0, done.stderr
    state = operator.state()
    assert [each.n for each in state.submissions] == [1, 2, 3]
    (carrier,) = operator.carriers()
    run = operator.flow_run(carrier)
    assert run.state is not None
    assert run.state.type == "COMPLETED"
    (execute,) = operator.task_runs(carrier)
    assert execute.run_count == 3
    assert "failed with exception: no error: g0n1r0 ended as preempted; another execution follows" in done.stderr
    assert {"lineage:digits", "generation:0"} <= set(execute.tags) & set(run.tags)
    artifacts = operator.artifacts(carrier)
    assert set(artifacts) >= {"plan-digits", "execution-digits", "lineage-digits", "timeline-digits", "progress-digits"}
    assert len(artifacts["execution-digits"]) == 3
    assert "g0n1r0" in artifacts["execution-digits"][0].data
    assert "openjd_status: step" in html.unescape(artifacts["execution-digits"][0].data)
    rows = artifacts["lineage-digits"][-1].data
    assert "g0n3r0" in str(rows)
    picture = artifacts["timeline-digits"][-1].data
    assert base64.b64decode(picture.split("base64,")[1].rstrip(")")).startswith(b"<svg")


@on_both
def test_each_execution_resumed_from_the_one_before(operator, json_of):
    # given
    operator.write_job(PROGRAM)
    submit = operator.start("submit", "job.yaml", "--wait")
    operator.preempt(operator.saved(1))
    operator.saved(2)
    operator.release()
    assert operator.finish(submit).returncode == 0
    # when
    status = json_of(operator.run("status", "digits", "--json").stdout)
    # then
    first, second = status["executions"]
    assert first["cause"] == "preempted"
    assert first["resumed_from"] == "scratch"
    assert second["resumed_from"].startswith("g0n1r0 step ")
    assert second["newest_step"] > int(second["resumed_from"].split()[-1])
    assert status["state"] == "succeeded"
    assert status["final_save"] == operator.facts("finished")[0].final_save


@on_both
def test_a_supervisor_that_is_killed_is_followed_by_one_that_adopts(operator, wait_until):
    # given
    operator.write_job(PROGRAM)
    first = operator.start("submit", "job.yaml", "--wait")
    before = operator.running(1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # when
    second = operator.start("submit", "job.yaml", "--wait")
    wait_until(lambda: len(operator.carriers()) == 2)
    operator.release()
    done = operator.finish(second)
    # then
    assert done.returncode == 0, done.stderr
    assert operator.objects() == [before.object]
    assert len(operator.facts("submitting")) == 1


def test_of_two_flow_runs_the_later_carries_and_the_earlier_stops_nothing(operator, wait_until):
    # given
    operator.write_job(PROGRAM)
    first = operator.start("submit", "job.yaml", "--wait")
    operator.running(1)
    # when
    second = operator.start("submit", "job.yaml", "--wait")
    first_done = operator.finish(first)
    early, late = operator.carriers()
    handed_over = operator.flow_run(early).state
    still_running = operator.state().open
    operator.release()
    second_done = operator.finish(second)
    # then
    assert first_done.returncode == 1
    assert handed_over.name == "HandedOver"
    assert late in handed_over.message
    assert still_running
    assert second_done.returncode == 0, second_done.stderr
    assert len(operator.objects()) == 1


def test_a_held_job_says_why_and_runs_again_on_a_persons_word(operator):
    # given
    operator.write_job(
        "import pathlib, sys\nsys.exit(0 if pathlib.Path('go').exists() else 7)",
        recovery={"failed": {"action": "hold"}},
    )
    # when
    held = operator.submit()
    (carrier,) = operator.carriers()
    run = operator.flow_run(carrier)
    refused = operator.submit()
    operator.release()
    lifted = operator.submit("--run-again", "--note", "fixed the disk")
    # then
    assert held.returncode == 75
    assert "held: failed: " in held.stderr
    assert (run.state.type, run.state.name) == ("FAILED", "Held")
    assert "exit 7" in run.state.message
    assert refused.returncode != 0
    assert "--run-again" in refused.stderr
    assert lifted.returncode == 0, lifted.stderr
    (fact,) = operator.facts("hold_lifted")
    assert (fact.note, fact.lifted_by, fact.resolution) == ("fixed the disk", "person", "run_again")
    assert [each.n for each in operator.state().submissions] == [1, 2]


def test_a_failed_program_fails_the_flow_run_and_is_not_run_again(operator):
    # given
    operator.write_job("raise SystemExit(3)")
    # when
    done = operator.submit()
    # then
    assert done.returncode == 1
    (carrier,) = operator.carriers()
    state = operator.flow_run(carrier).state
    assert state.type == "FAILED"
    assert "exit 3" in state.message
    (execute,) = operator.task_runs(carrier)
    assert (execute.state.type, execute.run_count) == ("FAILED", 1)
    assert "exit 3" in execute.state.message
    assert len(operator.objects()) == 1


def test_results_that_are_persisted_by_default_change_nothing(operator):
    # given
    operator.write_job(PROGRAM)
    submit = operator.start("submit", "job.yaml", "--wait", PREFECT_RESULTS_PERSIST_BY_DEFAULT="true")
    operator.preempt(operator.running(1))
    operator.running(2)
    operator.release()
    # when
    done = operator.finish(submit)
    # then
    assert done.returncode == 0, done.stderr
    assert len(operator.objects()) == 2


def test_a_changed_spec_is_refused_with_its_fields_and_changes_nothing(operator):
    # given
    operator.write_job("raise SystemExit(3)", recovery={"failed": {"action": "hold"}})
    operator.submit()
    before = len(operator.record().entries())
    # when
    operator.write_job("raise SystemExit(3)", recovery={"failed": {"action": "fail"}}, watch_interval="3s")
    done = operator.submit("--run-again")
    # then
    assert done.returncode == 1
    assert "recovery, watch_interval differ" in done.stderr
    assert "supersede" in done.stderr
    assert len(operator.record().entries()) == before


def test_a_finished_lineage_is_not_started_again(operator):
    # given
    operator.write_job("pass")
    assert operator.submit().returncode == 0
    # when
    again = operator.submit()
    # then
    assert again.returncode == 1
    assert "is finished (succeeded)" in again.stderr
    assert len(operator.objects()) == 1


def test_submit_without_wait_leaves_a_process_that_carries_the_job(operator, wait_until):
    # given
    operator.write_job("pass")
    # when
    done = operator.run("submit", "job.yaml")
    # then
    assert done.returncode == 0, done.stderr
    wait_until(lambda: operator.state().finished is not None)
    assert operator.state().finished.outcome == "succeeded"


def test_no_progress_holds_after_so_many_executions_without_a_save(operator):
    # given a program that never saves
    operator.write_job(
        "import os, pathlib, time\n"
        "pathlib.Path(f\"begun-{int(os.environ['DISPATCH_EPOCH']) // 10**6 % 10**6}\").touch()\n"
        "time.sleep(100)\n",
        recovery={"no_progress": 2},
    )
    submit = operator.start("submit", "job.yaml", "--wait")
    # when
    operator.preempt(operator.running(1))
    operator.preempt(operator.running(2))
    done = operator.finish(submit)
    # then
    assert done.returncode == 75, done.stderr
    assert "2 executions in a row ended without a new save" in done.stderr


def test_a_job_goes_on_without_prefect_where_its_api_is_away(operator, wait_until):
    # given
    operator.write_job("print('done')")
    # when
    done = operator.submit(PREFECT_API_URL="http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES="0")
    # then
    assert done.returncode == 0, done.stderr
    assert "the job goes on without it" in done.stderr
    assert "digits succeeded" in done.stdout
    (carrier,) = operator.carriers()
    assert carrier.startswith("process-")


def test_modules_in_the_jobs_folder_do_not_take_the_place_of_the_helpers(operator, wait_until):
    # given an ordinary repository with modules of well-known names
    operator.write_job("import secrets; print('own module:', secrets.OWN)", environment={"PYTHONPATH": "."})
    for name in ("secrets", "random", "signal", "select", "threading"):
        (operator.folder / f"{name}.py").write_text("OWN = True\n")
    # when
    done = operator.run("submit", str(operator.job_file), cwd=str(operator.folder.parent))
    # then
    assert done.returncode == 0, done.stderr
    wait_until(lambda: operator.state().finished is not None)
    assert operator.state().finished.outcome == "succeeded"
    assert "own module: True" in operator.run("logs", "digits", cwd=str(operator.folder.parent)).stdout


@on_a_folder
def test_a_root_that_goes_away_is_never_taken_for_an_empty_one(operator, wait_until):
    # given a job that has saved, and whose root is away when it runs again
    operator.write_job(PROGRAM, store={"root": "saves", "record_root": "runs"})
    submit = operator.start("submit", "job.yaml", "--wait")
    first = operator.running(1)
    (operator.folder / "saves").rename(operator.folder / "away")
    # when
    operator.preempt(first)
    wait_until(lambda: len(operator.facts("ended")) == 2)
    (operator.folder / "away").rename(operator.folder / "saves")
    operator.running(3)
    operator.release()
    done = operator.finish(submit)
    # then
    assert done.returncode == 0, done.stderr
    assert [fact.cause for fact in operator.facts("ended")] == ["preempted", "launch_failed", "completed"]
    status = json.loads(operator.run("status", "digits", "--json").stdout)
    assert status["executions"][2]["resumed_from"].startswith("g0n1r0 step ")


def test_the_jobs_outcome_is_the_records_word_also_when_prefect_has_lost_the_run(operator):
    # given
    operator.write_job(PROGRAM)
    submit = operator.start("submit", "job.yaml", "--wait")
    operator.running(1)
    (carrier,) = operator.carriers()
    # when
    operator.delete_flow_run(carrier)
    operator.release()
    done = operator.finish(submit)
    # then
    assert done.returncode == 0, done.stderr
    assert "digits succeeded" in done.stdout


def test_the_readmes_own_program_and_job_do_what_it_says(operator):
    # given the program, the job and the commands of the README, with steps that take no second
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    program, job, *commands = (
        block
        for language in ("python", "yaml", "sh")
        for block in re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    )
    (operator.folder / "train.py").write_text(program.replace("time.sleep(1)", "time.sleep(0.02)"))
    (operator.folder / "job.yaml").write_text(job)
    script = commands[-1].replace(". .venv/bin/activate", "set -e")
    environment = operator.environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    # when
    done = subprocess.run(
        ["sh", "-c", script], cwd=operator.folder, env=environment, capture_output=True, text=True, timeout=120
    )
    # then
    assert done.returncode == 0, done.stderr
    assert "lineage first succeeded" in done.stdout
    assert "first: succeeded" in done.stdout
    assert "published step 30" in done.stdout


@on_a_folder
def test_a_record_that_goes_away_is_waited_for_and_told_of_once(operator, wait_until):
    # given a running job
    operator.write_job(PROGRAM, store={"root": "saves", "record_root": "runs"})
    submit = operator.start("submit", "job.yaml", "--wait")
    operator.running(1)
    (carrier,) = operator.carriers()

    def told() -> list[str]:
        return [text for text in operator.logs(carrier) if str(operator.runs) in text and "not there" in text]

    # when its record is away for a while, which the flow run's log tells
    operator.runs.rename(operator.folder / "away")
    wait_until(told)
    (operator.folder / "away").rename(operator.runs)
    operator.release()
    done = operator.finish(submit)
    # then
    assert done.returncode == 0, done.stderr
    begun, over = told()
    assert "this is over: " not in begun and over == f"this is over: {begun}"
    assert len(operator.objects()) == 1
