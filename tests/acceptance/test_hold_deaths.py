"""Whoever is killed while a run is at a step of its way into a hold or out of it: the hold and its answer are kept."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from acceptance.test_prefect_crashes import WAITING
from prefect_dispatch.failpoints import ONCE, POINT, STOPS
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.supervisor import choices
from support.deployed import WORKING, patiently, poll, processes_of, reconcile, start_poll
from support.full_form import FULL
from support.reconciled import reconcile_later

SHORT = {"worker": (), "both": ("prefect.form",), "server": ("prefect.answer",)}
"""Who is killed, and at which steps, where the tests are in a hurry."""
KILLED = {who: WAITING if FULL else points for who, points in SHORT.items()}


def stopped_at(run: str) -> list[int]:
    """The processes of a run, once one of them has been stopped."""
    found = processes_of(run)
    return found if any(is_stopped(pid) for pid in found) else []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("who", [who for who, points in KILLED.items() if points])
def test_a_hold_outlives_whoever_dies_while_its_run_is_at_a_step(another, worker, prefect_server, who):
    # given held jobs whose runs are stopped at a step each
    points = KILLED[who]
    benches = {point: another(point.partition(".")[2]) for point in points}
    # Every run is dressed once before: as that of its lineage.
    armed = {point: "prefect.dress:2" if point == "prefect.dress" else point for point in points}
    # And every run that follows has its variables.
    runs = {
        point: looker.start(variables={POINT: armed[point], STOPS: "1", ONCE: str(operator.folder / "once")})
        for point, (operator, looker) in benches.items()
    }
    if "prefect.answer" in points:
        operator, looker = benches["prefect.answer"]
        looker.held(runs["prefect.answer"])
        assert looker.resume(runs["prefect.answer"], {"choice": "start from scratch"})[0] == "ACCEPT"
    processes = {
        point: patiently(lambda run=run: stopped_at(run), f"the stop at {point}") for point, run in runs.items()
    }
    # when the worker is killed, alone or together with the runs, or the server
    if who == "server":
        prefect_server.kill()
    else:
        worker.kill()
    for pid in (pid for each in processes.values() for pid in each):
        os.kill(pid, signal.SIGKILL if who == "both" else signal.SIGCONT)
    if who == "server":
        prefect_server.start()
    else:
        worker.start()
    # and those look who look each minute
    for operator, _ in benches.values():
        operator.release()
    if who == "both":
        for point, (operator, _) in benches.items():
            patiently(lambda point=point: not processes_of(runs[point]), "the death of the run")
            told, troubles = operator.ask(lambda operator=operator: reconcile_later(operator))
            assert troubles == [], told
    # then each hold is asked about, and what was answered already is not asked again
    for point, (operator, looker) in benches.items():
        if point != "prefect.answer":
            run = patiently(lambda operator=operator, looker=looker: answerable(operator, looker), f"a form, {point}")
            assert looker.resume(run, {"choice": "run again"})[0] == "ACCEPT"
        patiently(lambda operator=operator: is_over(operator), f"the end of the job, {point}")
        assert operator.state().finished.outcome == "succeeded"
        (lift,) = operator.facts("hold_lifted")
        assert lift.resolution == ("from_scratch" if point == "prefect.answer" else "run_again")
        assert len(operator.facts("hold_opened")) == 1
        assert [each.n for each in operator.state().submissions] == [1, 2]
        assert len({each.id for each in operator.objects()}) == 2


@pytest.mark.timeout(900)
def test_a_wish_outlives_the_process_that_is_killed_before_it_has_written_it_down(another):
    # given two jobs whose runs are to die as they read what a person has asked of them
    stopped, stopping = another("stopped")
    saved, saving = another("saved")
    first = stopping.start(WORKING, variables={POINT: "prefect.wish"})
    second = saving.start(WORKING, variables={POINT: "prefect.wish"})
    for operator in (stopped, saved):
        patiently((operator.folder / "begun-0").exists, "the program to begin")
    # when the one is cancelled and the other suspended, and nobody but their worker and reconcile sees to it
    stopping.cancel(first)
    saving.suspend(second)
    for run in (first, second):
        patiently(lambda run=run: not processes_of(run), "the death of the run")
    assert saved.facts("stop_requested") == []

    def looked(operator) -> bool:
        done = reconcile(operator)
        assert done.returncode == 0 and "not done" not in done.stdout, done.stdout + done.stderr
        return bool(operator.facts("stop_requested"))

    # then the one is stopped, and the other has saved and waits
    for operator in (stopped, saved):
        patiently(lambda operator=operator: looked(operator), "the wish in the record")
    assert stopped.state().finished.outcome == "stopped"
    patiently(lambda: saved.state().hold, "the hold of the suspended job")
    assert (saved.state().hold.opened.cause, saved.state().published) == ("suspended", 1)
    assert [len(operator.state().submissions) for operator in (stopped, saved)] == [1, 1]


@pytest.mark.timeout(900)
def test_a_poller_whose_server_dies_is_made_up_for_by_the_next_one(another, prefect_server):
    # given two held runs, one answered elsewhere and one whose job another run carries, and pollers about to say so
    waking, woken = another("wake")
    retiring, retired = another("retire")
    first, second = woken.start(), retired.start()
    woken.held(first)
    retired.held(second)
    record = retiring.record()
    record.refresh()
    record.append(CarriedBy(flow_run="another"))
    waking.release()
    choices.run_again(waking.record(), who="ada")
    pollers = [
        start_poll(operator, **{POINT: point, STOPS: "1"})
        for operator, point in ((waking, "prefect.wake"), (retiring, "prefect.retire"))
    ]
    for poller in pollers:
        patiently(lambda poller=poller: is_stopped(poller.pid), "the stop of the poller")
    # when the server dies, and is back
    prefect_server.kill()
    for poller in pollers:
        poller.send_signal(signal.SIGCONT)
    prefect_server.start()
    for poller in pollers:
        poller.communicate(timeout=180)
    polled = poll(waking, waking.root, retiring.root)
    # then the next one has done what they may have left
    assert polled.returncode == 0 and "not done" not in polled.stdout, polled.stdout + polled.stderr
    assert retired.run(second).state.name == "HandedOver"
    assert woken.reaches(first, "Completed", "Failed", "Suspended").state.name == "Completed"
    assert len(waking.facts("hold_lifted")) == 1
    assert retiring.state().hold is not None


def is_stopped(pid: int) -> bool:
    return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_over(operator) -> bool:
    """Whether the job is over; else who looks each minute looks: Prefect fails a run that begins a task just then."""
    if operator.state().finished is None:
        looked = reconcile(operator)
        assert looked.returncode == 0, looked.stdout + looked.stderr
    return operator.state().finished is not None


def answerable(operator, looker) -> str | None:
    """The run that carries the lineage now, if it can be answered; who looks for its form looks each time."""
    run = operator.carriers()[-1]
    state = looker.run(run).state
    if state is None or not state.is_paused():
        return None
    if looker.read_input(run, "schema"):
        return run
    polled = poll(operator)
    assert polled.returncode == 0, polled.stderr
    return None
