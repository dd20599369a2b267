"""Held jobs of the deployment: suspended runs without a process, and what answers, people and crashes do to them."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import HoldLifted, LiftedBy, Resolution
from prefect_dispatch.supervisor import choices
from support.deployed import PROGRAM, patiently, poll, processes_of


def test_each_choice_of_the_form_is_what_happens_next(another):
    # given a job that fails whenever it runs
    operator, deployed = another("choices")
    run = deployed.start()
    held = deployed.held(run)
    # then the list of runs tells why, and nothing runs for it
    assert held.name == "choices: held, failed"
    assert {"held", "lineage:choices", "generation:0"} <= set(held.tags)
    patiently(lambda: not processes_of(run), "no process of the run")
    page, schema = deployed.read_input(run, "description"), deployed.read_input(run, "schema")
    assert "| What ended | g0n1r0 as failed: exit 7 |" in page
    assert "| Save 1 | g0n1r0 step 2" in page
    assert schema["required"] == ["choice"]
    assert "default" not in schema["properties"]["choice"]
    assert schema["properties"]["choice"]["enum"] == [
        "run again",
        "continue from g0n1r0 step 2",
        "continue from g0n1r0 step 1",
        "start from scratch",
        "stop the job",
    ]
    # and nothing but a choice is an answer
    for nonsense in (None, {}, {"note": "x"}, {"choice": None}, {"choice": "go on"}, {"choice": "run again", "x": 1}):
        assert deployed.resume(run, nonsense)[0] == "REJECT"
    assert operator.facts("hold_lifted") == []
    # when each hold is answered otherwise
    answers = [
        {"choice": "continue from g0n1r0 step 1"},
        {"choice": "start from scratch"},
        {"choice": "run again", "note": "the disk is back", "name": "ada"},
        {"choice": "stop the job"},
    ]
    seen = schema["properties"]["about"]["default"]
    for number, answer in enumerate(answers, start=1):
        patiently(lambda number=number: len(operator.facts("hold_opened")) == number, f"hold {number}")
        deployed.held(run)
        if number > 1:
            # and who still has the form of an earlier hold open is told that this is another one
            word, reason = deployed.resume(run, {"choice": "stop the job", "about": seen})
            assert (word, operator.state().hold.opened.hold in reason) == ("REJECT", True), reason
            assert len(operator.facts("hold_lifted")) == number - 1
        assert deployed.resume(run, answer)[0] == "ACCEPT"
        assert deployed.resume(run, {"choice": "stop the job"})[0] == "ABORT"
    # then
    over = deployed.reaches(run, "Stopped", "Completed", "Failed")
    assert (over.state.name, over.name) == ("Stopped", "supervise-choices")
    assert "held" not in over.tags
    assert operator.carriers() == [run] * 5
    assert [each.n for each in operator.state().submissions] == [1, 2, 3, 4]
    from_one, scratch, again = (each.base for each in operator.state().submissions[1:])
    assert (Publication.parse(from_one).step, scratch, again) == (1, "scratch", "scratch")
    lifts = operator.facts("hold_lifted")
    assert [each.resolution for each in lifts] == ["continue_from", "from_scratch", "run_again", "stop"]
    assert {each.lifted_by for each in lifts} == {"person"}
    assert (lifts[2].note, lifts[2].who) == ("the disk is back", "ada, in the Prefect UI")
    told = [*["execution.ended", "hold.opened", "hold.lifted"] * 4, "finished"]
    patiently(lambda: deployed.events("choices") == told, "the events of the lineage")


def test_who_answers_second_is_told_and_changes_nothing(operator, deployed):
    # given a hold that is lifted on the command line, where Prefect cannot be asked, and by a person in the UI
    run = deployed.start()
    deployed.held(run)
    operator.release()
    lifted = operator.run("resume", "digits", "--run-again", PREFECT_API_URL="http://127.0.0.1:9/api")
    # when
    word, _ = deployed.resume(run, {"choice": "start from scratch"})
    # then
    assert lifted.returncode == 0, lifted.stderr
    assert word == "ACCEPT"
    ended = deployed.reaches(run, "Completed", "Failed")
    assert ended.state.name == "Completed"
    (fact,) = operator.facts("hold_lifted")
    assert fact.resolution == "run_again"
    assert "the answer to hold" in ended.state.message
    assert "run it again" in ended.state.message
    patiently(lambda: "changed nothing" in deployed.log(run), "the answer that came too late in the log")


def test_a_run_goes_on_whoever_lifted_its_hold_and_whatever_was_killed_behind_it(another):
    # given three held jobs
    benches = {name: another(name) for name in ("command", "killed", "expired")}
    runs = {name: deployed.start(hold_for="24h") for name, (_, deployed) in benches.items()}
    for name, (operator, deployed) in benches.items():
        deployed.held(runs[name])
        operator.release()
    command, killed, expired = (operator for operator, _ in benches.values())
    # when one is lifted by a command, and two by whoever is killed before they can wake the run
    resumed = command.run("resume", "command", "--run-again")
    choices.run_again(killed.record(), who="ada")
    record = expired.record()
    hold = record.refresh().hold.opened.hold
    record.append(HoldLifted(hold=hold, lifted_by=LiftedBy.EXPIRY, resolution=Resolution.EXPIRE))
    polled = poll(killed, killed.root, expired.root)
    again = poll(killed, killed.root, expired.root)
    # then
    assert f"flow run {runs['command']} is resumed" in resumed.stdout
    assert f"killed is resumed: hold {killed.facts('hold_opened')[0].hold} is lifted by ada" in polled.stdout, (
        polled.stderr
    )
    assert "expired is resumed: " in polled.stdout
    assert "is resumed" not in again.stdout
    over = {name: benches[name][1].reaches(id, "Completed", "Failed") for name, id in runs.items()}
    assert {name: run.state.name for name, run in over.items()} == {
        "command": "Completed",
        "killed": "Completed",
        "expired": "Failed",
    }
    assert "hold_expired" in over["expired"].state.message
    assert expired.state().finished.outcome == "hold_expired"
    assert killed.carriers() == [runs["killed"]] * 2
    assert '"holds_polled_at": null' in command.run("status", "command", "--json").stdout
    assert '"holds_polled_at": "20' in killed.run("status", "killed", "--json").stdout


def test_an_answer_outlives_the_process_that_was_to_read_it_and_the_worker(operator, deployed, worker):
    # given an answer, and a worker that is killed together with the process that it has just started for it
    run = deployed.start()
    deployed.held(run)
    operator.release()
    assert deployed.resume(run, {"choice": "start from scratch"})[0] == "ACCEPT"
    (process,) = patiently(lambda: processes_of(run)[:1], "the process of the run")
    worker.kill()
    os.kill(process, 9)
    crashed = {"type": "CRASHED", "name": "Crashed"}
    deployed.ask("POST", f"/flow_runs/{run}/set_state", state=crashed, force=True)
    assert operator.facts("hold_lifted") == []
    # when
    worker.start()
    adopter = deployed.start()
    # then
    assert deployed.reaches(adopter, "Completed", "Failed", "Suspended").state.name == "Completed"
    (fact,) = operator.facts("hold_lifted")
    assert fact.resolution == "from_scratch"
    assert [each.n for each in operator.state().submissions] == [1, 2]


def test_cancelled_while_held_is_stopped_and_deleted_while_held_is_nothing_lost(another):
    # given
    operator, deployed = another("digits")
    other, beside = another("beside")
    first, second = deployed.start(), beside.start()
    deployed.held(first)
    beside.held(second)
    # when
    deployed.cancel(first)
    polled = poll(operator)
    other.delete_flow_run(second)
    after = poll(other)
    other.release()
    joined = other.run("submit", str(same_job(other)), "--wait")
    again = other.run("submit", str(same_job(other)), "--wait", "--run-again")
    # then
    assert f"digits is to stop: flow run {first} was cancelled" in polled.stdout, polled.stderr
    assert operator.state().finished.outcome == "stopped"
    assert "held" not in deployed.run(first).tags
    assert after.returncode == 0
    assert joined.returncode == 75
    assert "beside is held" in joined.stderr
    assert again.returncode == 0, again.stderr
    assert len(other.facts("hold_opened")) == 1


def same_job(operator) -> Path:
    """The deployed job as a file, as somebody has it who wants to go on from the command line."""
    (opened,) = operator.facts("opened")
    path = operator.folder / "same.yaml"
    path.write_text(opened.spec.model_dump_json())
    (operator.folder / "program.py").write_text(PROGRAM)
    return path
