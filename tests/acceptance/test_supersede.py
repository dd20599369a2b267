"""Supersession with a real Prefect server: from the command line, and as runs of a deployment that are held."""

from __future__ import annotations

from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.cli.submit import supervise_apart
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.opening import open_lineage
from support.deployed import patiently

SAVES_AND_WAITS = """
import os, pathlib, sys, time
source = os.environ["DISPATCH_RESUME_FROM"]
step = int((pathlib.Path(source) / ".complete").read_text()) if source else 0
with open("began", "a") as out:
    out.write(f"{int(os.environ['DISPATCH_EPOCH']) // 10**12} {step}\\n")
save = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"]) / f"step-{step + 1}"
save.mkdir()
(save / ".complete").write_text(str(step + 1))
pathlib.Path("begun-1").touch()
while not os.path.exists("go"):
    time.sleep(0.1)
sys.exit(int(os.environ.get("EXIT", "0")))
"""


def test_a_running_job_is_superseded_from_the_command_line(operator):
    # given a job that a process carries
    operator.write_job(SAVES_AND_WAITS)
    old = operator.start("submit", str(operator.job_file), "--wait")
    running = operator.saved(1)
    # when a changed one is submitted, then it is refused, and the way out is told
    operator.write_job(SAVES_AND_WAITS, environment={"RATE": "2"})
    refused = operator.submit()
    assert refused.returncode == 1
    assert "environment differ" in refused.stderr and "prefect-dispatch supersede digits JOB" in refused.stderr
    # when it supersedes the old one
    superseding = operator.start("supersede", "digits", str(operator.job_file), "--note", "a better rate", "--wait")
    patiently(lambda: operator.state().generation == 1, "generation 1")
    operator.release()
    done = operator.finish(superseding)
    # then it goes on from the old one's save, to its end
    assert done.returncode == 0, done.stderr
    assert "generation 1 of digits takes the place of generation 0" in done.stdout
    assert "goes on from the newest save" in done.stdout
    state = operator.state()
    assert (state.generation, state.finished.outcome, state.opened.note) == (1, "succeeded", "a better rate")
    assert [each.object for each in state.obligations] == [running.object]
    # and the process that carried the old one goes, and says why
    told = operator.finish(old)
    assert told.returncode == 1 and "generation 0 of lineage digits was superseded by generation 1" in told.stderr
    # and so do the two flow runs
    first, second = (operator.flow_run(id) for id in operator.carriers())
    assert (first.state.type, first.state.name) == ("CANCELLED", "Superseded")
    assert "superseded the job with generation 1" in first.state.message
    assert second.state.type == "COMPLETED"
    assert "generation:0" in first.tags and "generation:1" in second.tags


def test_a_held_run_of_a_deployment_is_superseded_by_another_one_once(operator, deployed, worker):
    # given a held job, for which no process waits
    old = deployed.start()
    deployed.held(old)
    # when a run of the deployment supersedes it with a job that fails too
    operator.release()
    new = deployed.supersede("scratch", SAVES_AND_WAITS, environment={"EXIT": "7"})
    # then the old run waits no more
    over = deployed.reaches(old, "Superseded")
    assert over.state.type == "CANCELLED" and "generation 1" in over.state.message
    # and the new one carries generation 1 until it is held
    held = deployed.held(new)
    assert {"held", "lineage:digits", "generation:1"} <= set(held.tags)
    state = operator.state()
    assert (state.generation, state.base, state.carried_by) == (1, "scratch", new)
    # when it is answered, the run starts again from the top
    choices.from_scratch(operator.record(), who="ada")
    assert deployed.resume(new, {"choice": "stop the job"})[0] in ("ACCEPT", "ABORT")
    patiently(lambda: len(operator.state().submissions) == 2, "another submission")
    # then no third generation is opened, and it goes on with what was chosen
    patiently(lambda: len(operator.facts("hold_opened")) == 3, "another hold")
    assert [fact.parent for fact in operator.facts("opened")] == [None, 0]
    assert operator.facts("opened")[1].request == new
    # when it is superseded while it is held, by the same job again
    last = deployed.supersede(None, SAVES_AND_WAITS)
    # then that one comes to its end, and this one is over
    assert deployed.reaches(last, "Completed", "Failed").state.type == "COMPLETED"
    assert deployed.reaches(new, "Superseded").state.type == "CANCELLED"
    assert operator.state().generation == 2
    # and a retry of either changes nothing
    counted = {run: deployed.run(run).run_count for run in (new, last)}
    for run in counted:
        again = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        assert deployed.ask("POST", f"/flow_runs/{run}/set_state", state=again)["status"] == "ACCEPT"
        patiently(lambda run=run: deployed.run(run).run_count > counted[run], "the retry")
    assert deployed.reaches(last, "Completed", "Failed").state.type == "COMPLETED"
    assert deployed.reaches(new, "Superseded", "Failed").state.name == "Superseded"
    assert len(operator.facts("opened")) == 3


def test_a_job_that_was_stopped_while_its_process_began_does_not_begin_again(operator, monkeypatch):
    # given a job that may be begun again, opened by a command, and stopped before the command's process carries it
    job = resolve_job(operator.write_job(SAVES_AND_WAITS, on_finished="supersede"))
    generation = open_lineage(operator.record(), job, plan_of(job)).generation
    assert operator.run("stop", "digits").returncode == 0
    # when that process comes
    for name, value in operator.environment().items():
        monkeypatch.setenv(name, value)
    told = supervise_apart(job, operator.record(), generation)
    # then the job stays stopped, and that is told
    (log,) = (operator.folder / "own-state" / "supervisors").glob("*.log")
    assert told == 1
    assert "lineage digits stopped" in log.read_text()
    assert [fact.kind for fact in operator.facts("opened")] == ["opened"]
    assert operator.objects() == []
