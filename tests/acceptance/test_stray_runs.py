"""Flow runs whose processes were not there when something became of their jobs, and runs of other people's flows."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prefect.states import Cancelled, Completed, Scheduled

from prefect_dispatch.errors import UsageError
from prefect_dispatch.model.facts import CarriedBy, Finished, Opened
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.tasks.held_run import dress_as_held, last_answer
from prefect_dispatch.tasks.held_runs import delete_old_polls
from prefect_dispatch.tasks.hold_form import read_answer
from support.deployed import WORKING, patiently, processes_of
from support.stray_runs import StrayRuns, suspended


@pytest.fixture
def strays(tmp_path: Path, prefect_api: str) -> StrayRuns:
    return StrayRuns(tmp_path / "runs", prefect_api)


def test_a_suspended_run_without_a_process_looks_held_while_its_job_is(strays):
    # given a held job whose run was suspended, and no process that could have said so
    run = strays.make("supervise", suspended())
    strays.carry(run)
    # when
    told, troubles = strays.reconcile(run)
    # then the run is found among those that wait, and stays as the person left it
    looked = strays.run(run)
    assert (told, troubles) == ([], [])
    assert {"held", "lineage:digits"} <= set(looked.tags)
    assert looked.name.startswith("digits: held, ")
    assert looked.state.name == "Suspended"


@pytest.mark.parametrize(
    ("flow", "what"), [("supersede", "over"), ("supervise", "handed over"), ("supervise", "superseded")]
)
def test_a_suspended_run_ends_whose_job_is_over_or_carried_by_nobody_like_it(strays, flow, what):
    # given a suspended run that nobody marked as held
    run = strays.make(flow, suspended())
    strays.carry(run)
    record = strays.lineage.record()
    state = record.refresh()
    match what:
        case "over":
            record.append(Finished(outcome="succeeded", detail="exit 0"))
        case "handed over":
            record.append(CarriedBy(flow_run="process-1"))
        case "superseded":
            opened = state.opened
            assert isinstance(opened, Opened)
            record.append(opened.model_copy(update={"request": "another", "owner": "ann"}), state.generation + 1)
    # when
    told, troubles = strays.reconcile(run)
    again = strays.reconcile(run)
    # then
    looked = strays.run(run)
    names = {"over": "Completed", "handed over": "HandedOver", "superseded": "Superseded"}
    assert looked.state.name == names[what]
    assert looked.name == f"{flow}-digits"
    assert [f"flow run {run} waits no more" in text for text in told] == [True]
    assert (troubles, again) == ([], ([], []))


@pytest.mark.timeout(600)
def test_a_run_that_was_suspended_as_its_program_exits_ends_with_its_job(operator, deployed):
    # given a run whose process is stopped while its program exits, which somebody else sees, and a person suspends it
    run = deployed.start(WORKING)
    patiently((operator.folder / "begun-0").exists, "the program to begin")
    processes = processes_of(run)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    operator.release()
    record = operator.record()
    supervisor = supervisor_of(record, record.refresh(), SystemClock())
    patiently(lambda: asyncio.run(supervisor.advance()).state.finished, "the job's end")
    deployed.suspend(run)
    # when the process goes on
    for process in processes:
        os.kill(process, signal.SIGCONT)
    # then nothing is left for anybody to resume
    ended = deployed.reaches(run, "Completed", "Failed", "Stopped", "Crashed")
    assert ended.state.name == "Completed", ended.state.message
    assert "held" not in ended.tags
    assert operator.state().finished.outcome == "succeeded"


def test_the_runs_of_other_peoples_flows_are_left_as_they_are(strays):
    def delete_polls() -> int:
        later = datetime.now(UTC) + timedelta(minutes=1)
        return strays.ask(lambda client: delete_old_polls(client, "reconcile", later))

    # given no polls of ours from before, and runs of flows that are not ours, though named or tagged like ours
    delete_polls()
    mine = strays.make("supervise", Completed(), tags=("held", "lineage:digits"))
    etl = strays.make_foreign("etl", Completed(), tags=("held", "lineage:digits"))
    namesake = strays.make_foreign("supervise", Completed(), tags=("held",))
    poller = strays.make_foreign("reconcile", Completed())
    # when
    polled = strays.poll()
    deleted = delete_polls()
    # then
    assert "not done" not in polled
    assert "held" not in strays.run(mine).tags
    for run in (etl, namesake):
        assert ("held" in strays.run(run).tags, strays.run(run).name) == (True, "theirs")
    assert strays.run(poller).name == "theirs"
    assert deleted == 0


def test_a_signal_that_is_not_there_hinders_nothing_else(strays):
    # given a run that waits though its hold was lifted
    run = strays.make("supervise", suspended(), tags=("held", "lineage:digits"))
    strays.carry(run)
    choices.run_again(strays.lineage.record(), strays.lineage.hold, who="ann")
    # when
    polled = strays.poll(signal="command-signal/nosuch")
    # then
    assert "not done: signal 'command-signal/nosuch': Prefect has no block of that name" in polled
    assert f"digits is resumed: hold {strays.lineage.hold} is lifted by ann" in polled
    assert strays.run(run).state.is_scheduled()


@pytest.mark.parametrize("parameters", [{}, {"job": {"lineage": "Not Ours"}}, {"job": "nightly"}], ids=repr)
def test_a_flow_of_somebody_elses_that_is_named_like_ours_is_no_trouble(strays, parameters):
    # given one that runs for long
    run = strays.make_foreign("supervise", parameters=parameters)
    # when
    looked = strays.reconcile(run, later=timedelta(minutes=15))
    # then
    assert looked[1] == []
    assert strays.run(run).state.name == "Running"


@pytest.mark.parametrize("flow", ["supervise", "supersede"])
def test_a_run_that_was_cancelled_while_it_was_held_stops_its_job_in_a_store_that_only_it_names(strays, flow):
    # given
    run = strays.make(flow, suspended(), Cancelled(), tags=("held", "lineage:digits"))
    strays.carry(run)
    # when stores are left empty
    polled = strays.poll_all()
    # then the stop is in the record, before the run looks like any other
    (lift,) = strays.lineage.lifts()
    assert (lift.resolution, lift.who) == ("stop", "a person in the Prefect UI"), polled
    assert f"flow run {run} was cancelled" in lift.note
    assert (strays.run(run).tags, strays.run(run).name) == (["lineage:digits"], f"{flow}-digits")


@pytest.mark.parametrize("stored", ["no JSON", '["a list"]', '"stop the job"'])
def test_an_answer_that_cannot_be_read_chooses_nothing_and_the_next_one_counts(strays, stored):
    # given what anybody may store by the API
    run = strays.make("supervise", suspended())
    strays.answer(run, "suspended-hold-h1-1-response", stored)
    # when
    looked = strays.run(run)
    first = strays.ask(lambda _: last_answer(looked, "h1"))
    strays.answer(run, "suspended-hold-h1-2-response", '{"choice": "stop the job"}')
    second = strays.ask(lambda _: last_answer(looked, "h1"))
    # then
    assert first == ({}, 1)
    assert second == ({"choice": "stop the job"}, 2)
    with pytest.raises(UsageError, match="is no answer"):
        read_answer(first[0], [], "h1")


def test_a_run_that_was_resumed_before_its_process_has_ended_is_not_said_to_be_held(strays):
    # given a run that was suspended, and resumed while its program saved
    run = strays.make("supervise", suspended(), Scheduled(name="Resuming"))
    name = strays.run(run).name
    # when its old process leaves
    strays.ask(lambda client: dress_as_held(client, UUID(run), ("lineage:digits",), "digits: held, suspended"))
    # then
    assert (strays.run(run).name, "held" in strays.run(run).tags) == (name, False)
