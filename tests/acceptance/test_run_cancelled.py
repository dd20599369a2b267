"""Flow runs that people cancel or suspend in the UI: the record says so, and the job obeys, whatever was killed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_URL, temporary_settings

from prefect_dispatch.blocks.record_roots import looked_after
from prefect_dispatch.flows import reconcile as run_reconcile
from prefect_dispatch.flows import supervise
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.supervisor.beats import Heart, sweep_beats
from prefect_dispatch.tasks.supervise_runs import jobs_of, read_broken_runs, read_live_runs
from support.deployed import WORKING, patiently, processes_of, reconcile
from support.marked_processes import kill_each
from support.reconciled import LaterClock, reconcile_later


def begun(operator, step: int = 0) -> None:
    patiently((operator.folder / f"begun-{step}").exists, f"the program to begin at step {step}")


def kill_processes_of(run: str, worker) -> None:
    """Kill the worker and the process of a run, so that nobody is left to tell Prefect."""
    worker.kill()
    kill_each(processes_of(run))
    patiently(lambda: not processes_of(run), "no process of the run")


async def roots_of_runs() -> list[str]:
    """What ``reconcile`` looks after by itself."""
    async with get_client() as client:
        runs = [*await read_live_runs(client), *await read_broken_runs(client)]
        return await looked_after(None, jobs_of(runs), [])


@pytest.mark.timeout(900)
def test_a_cancelled_run_stops_its_job_and_a_suspended_one_has_it_save_and_goes_on_when_resumed(another):
    # given two jobs that run
    stopped, stopping = another("stopped")
    saved, saving = another("saved")
    first, second = stopping.start(WORKING), saving.start(WORKING)
    for operator in (stopped, saved):
        begun(operator)
    # when one run is cancelled and the other suspended, with nobody but their worker to see to it
    stopping.cancel(first)
    saving.suspend(second)
    # then the one job is stopped, without a save
    patiently(lambda: stopped.state().finished, "the end of the cancelled job")
    stopping.reaches(first, "Cancelled", "Stopped")
    assert stopped.state().finished.outcome == "stopped"
    assert stopped.state().published == 0
    (request,) = stopped.facts("stop_requested")
    assert (request.intent, request.who) == ("abandon", "a person in the Prefect UI")
    assert f"flow run {first} was cancelled" in request.note
    patiently(lambda: stopping.events("stopped") == ["execution.ended", "finished"], "the events of the cancelled job")
    # and the other has saved, and its run stays as the person left it
    patiently(lambda: saved.state().hold, "the hold of the suspended job")
    patiently(lambda: not processes_of(second), "no process of the suspended run")
    hold = saved.state().hold.opened
    assert (hold.cause, hold.until) == ("suspended", None)
    run = saving.run(second)
    assert (run.state.name, run.state.state_details.pause_key) == ("Suspended", None)
    assert run.name.startswith("saved: held, ")
    assert {"held", "lineage:saved"} <= set(run.tags)
    # when it is resumed
    (saved.folder / "go").touch()
    assert saving.resume(second) == ("ACCEPT", "None")
    # then it goes on from that save, and nobody asks anything
    ended = saving.reaches(second, "Completed", "Failed", "Suspended", "Crashed")
    assert ended.state.name == "Completed", ended.state.message
    (lift,) = saved.facts("hold_lifted")
    assert (lift.hold, lift.resolution, lift.lifted_by) == (hold.hold, "run_again", "person")
    assert f"flow run {second} was resumed" in lift.note
    assert (saved.folder / "begun-7").exists()
    assert [each.n for each in saved.state().submissions] == [1, 2]
    assert Publication.parse(saved.state().finished.final_save).step == 7


@pytest.mark.timeout(900)
def test_a_cancel_and_a_suspension_count_though_process_and_worker_are_dead(another, worker, prefect_server):
    # given two jobs whose runs still seem to run, while nothing of their flows is left
    stopped, stopping = another("stopped")
    saved, saving = another("saved")
    first, second = stopping.start(WORKING), saving.start(WORKING)
    for operator in (stopped, saved):
        begun(operator)
    kill_processes_of(first, worker)
    kill_processes_of(second, worker)
    # when a person cancels the one and suspends the other, the server is killed too, and the next one looks
    stopping.cancel(first)
    saving.suspend(second)
    prefect_server.kill()
    prefect_server.start()
    looked = reconcile(stopped, str(stopped.runs), str(saved.runs))
    # then
    assert stopped.state().finished.outcome == "stopped", looked.stdout + looked.stderr
    assert saved.state().hold.opened.cause == "suspended", looked.stdout + looked.stderr
    assert saving.run(second).state.name == "Suspended"
    assert saved.state().published == 1
    # and the second look finds nothing more to do
    again = reconcile(stopped, str(stopped.runs), str(saved.runs))
    assert again.stdout.strip() == "1 open lineages in 2 stores", again.stdout + again.stderr
    # when the worker is back and the person resumes
    worker.start()
    (saved.folder / "go").touch()
    assert saving.resume(second)[0] == "ACCEPT"
    assert saving.reaches(second, "Completed", "Failed", "Suspended").state.name == "Completed"
    for operator in (stopped, saved):
        assert len({each.id for each in operator.objects()}) == len(operator.state().submissions)


@pytest.mark.timeout(900)
def test_a_run_that_lost_its_process_is_taken_over_once(another, worker):
    # given a job whose run was killed so that Prefect knows, and one of which nobody told
    seen, seeing = another("seen")
    unseen, blind = another("unseen")
    first, second = seeing.start(WORKING), blind.start(WORKING)
    for operator in (seen, unseen):
        begun(operator)
    kill_each(processes_of(first))
    assert seeing.reaches(first, "Crashed", "Completed").state.name == "Crashed"
    kill_processes_of(second, worker)
    # then their stores are found, though nobody has named them
    assert {str(seen.runs), str(unseen.runs)} <= set(seen.ask(roots_of_runs))
    # when one looks at once, and again
    looked = reconcile(seen, str(seen.runs), str(unseen.runs))
    again = reconcile(seen, str(seen.runs), str(unseen.runs))
    # then the one that crashed has a run that takes it over, and the other one is given time
    assert "takes seen over" in looked.stdout, looked.stdout + looked.stderr
    assert again.stdout.strip() == "2 open lineages in 2 stores", again.stdout + again.stderr
    assert blind.run(second).state.name == "Running"

    # nor does a clock that is ahead take a process for dead that gives signs of life
    def beat() -> None:
        Heart(str(unseen.runs), "unseen", second, LaterClock()).beat()

    assert unseen.ask(lambda: reconcile_later(unseen, beat)) == ([], [])
    sweep_beats(str(unseen.runs), datetime.max.replace(tzinfo=UTC))
    # when that time is over
    told, troubles = unseen.ask(lambda: reconcile_later(unseen))
    # then it is marked, and taken over too
    assert troubles == []
    assert [f"flow run {second} has crashed" in told[0], "takes unseen over" in told[1], len(told)] == [True, True, 2]
    assert blind.run(second).state.name == "Crashed"
    # and both jobs come to their end as the executions that they were
    worker.start()
    for operator in (seen, unseen):
        operator.release()
        patiently(lambda operator=operator: operator.state().finished, "the end of a job that was taken over")
        assert operator.state().finished.outcome == "succeeded"
        assert [each.n for each in operator.state().submissions] == [1]
        assert len(operator.objects()) == 1
        assert len(operator.carriers()) == 2
    assert seeing.run(first).state.name == "Crashed"


def test_a_held_job_is_stopped_though_the_command_leaves_it_to_others(operator, deployed, worker):
    # given a held job, for which no process waits
    run = deployed.start()
    deployed.held(run)
    # when a command only writes down that it is to stop
    asked = operator.run("stop", operator.lineage, "--no-wait")
    assert asked.returncode == 0, asked.stderr
    assert operator.state().finished is None
    # then whoever looks next sees to it, and the run ends too
    looked = reconcile(operator)
    assert operator.state().finished.outcome == "stopped", looked.stdout + looked.stderr
    assert deployed.reaches(run, "Stopped", "Cancelled", "Suspended").state.name == "Stopped"


def test_a_store_that_only_a_run_names_may_not_be_there_yet(another_server, tmp_path):
    # given a run that has not made its folder
    store = tmp_path / "not-yet"

    async def look() -> State[Any]:
        async with get_client() as client:
            job = {"lineage": "later", "store": {"root": str(store)}}
            await client.create_flow_run(supervise, parameters={"job": job})
        return await run_reconcile(return_state=True)

    # when one looks after all stores that are known
    with temporary_settings({PREFECT_API_URL: another_server.url}):
        state = asyncio.run(look())
    # then
    assert state.name == "Completed"
    assert state.message.startswith(f"0 open lineages in 0 stores; not looked after: store {store} is not there")
    assert not store.exists()
