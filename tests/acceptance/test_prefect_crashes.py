"""Crashes: whoever changes something in Prefect is killed right before it; no hold, wish or object is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from prefect_dispatch.failpoint import Failpoint
from prefect_dispatch.failpoints import ONCE, POINT
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.supervisor import choices
from support.deployed import WORKING, patiently, poll, processes_of, reconcile
from support.full_form import FULL
from support.marked_processes import kill_each
from support.reconciled import reconcile_later

WAITING = ("prefect.dress", "prefect.pause", "prefect.form-page", "prefect.form", "prefect.answer")
"""Where a run comes by that is held, and answered."""
TRIED = WAITING if FULL else ("prefect.pause", "prefect.form", "prefect.answer")
LOOKING = ("prefect.wake", "prefect.retire", "prefect.wish", "prefect.crash", "prefect.adopt")
"""Where a poller comes by."""


def test_there_is_a_crash_for_each_failpoint():
    assert sorted({*WAITING, *LOOKING}) == sorted(
        point.value for point in Failpoint if point.value.startswith("prefect.")
    )


def is_killed(process: subprocess.CompletedProcess[str]) -> bool:
    return process.returncode == -signal.SIGKILL


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_on_its_way_into_a_hold_or_out_of_it_loses_neither(another):
    # given held jobs whose runs are killed at a step each
    benches = {point: another(point.partition(".")[2]) for point in TRIED}
    # Every run is dressed once before: as that of its lineage.
    armed = {point: "prefect.dress:2" if point == "prefect.dress" else point for point in TRIED}
    # Whoever takes a job over has the variables of the run before.
    runs = {
        point: looker.start(variables={POINT: armed[point], ONCE: str(operator.folder / "once")})
        for point, (operator, looker) in benches.items()
    }
    operator, looker = benches["prefect.answer"]
    looker.held(runs["prefect.answer"])
    assert looker.resume(runs["prefect.answer"], {"choice": "start from scratch"})[0] == "ACCEPT"
    for point, (operator, _) in benches.items():
        patiently(lambda operator=operator: operator.is_there() and operator.facts("hold_opened"), f"a hold, {point}")
        patiently(lambda point=point: not processes_of(runs[point]), f"the death of the run at {point}")
    answering = benches["prefect.answer"][0]
    assert answering.facts("hold_lifted") == []
    # when the next ones look, as they do each minute
    for operator, _ in benches.values():
        operator.release()
    for operator, _ in benches.values():
        told, troubles = operator.ask(lambda operator=operator: reconcile_later(operator))
        assert troubles == [], told
    # then each hold is asked about once more, and what was answered already is not asked again
    for point, (operator, looker) in benches.items():
        first = runs[point]
        run = patiently(lambda operator=operator, first=first: _after(operator, first), f"a run after {point}")
        if point != "prefect.answer":
            looker.held(run)
            assert looker.resume(run, {"choice": "run again"})[0] == "ACCEPT"
        assert looker.reaches(run, "Completed", "Failed", "Crashed").state.name == "Completed"
        (lift,) = operator.facts("hold_lifted")
        assert lift.resolution == ("from_scratch" if point == "prefect.answer" else "run_again")
        assert len(operator.facts("hold_opened")) == 1
        assert [each.n for each in operator.state().submissions] == [1, 2]


def _after(operator, run: str) -> str | None:
    last = operator.carriers()[-1]
    return last if last != run else None


@pytest.mark.timeout(900)
def test_a_poller_that_is_killed_is_made_up_for_by_the_next_one(another, worker):
    # given two held runs, one answered elsewhere and one whose job another run carries; and three that work
    benches = {point: another(point.partition(".")[2]) for point in LOOKING}
    runs = {
        point: looker.start() if point in LOOKING[:2] else looker.start(WORKING)
        for point, (_, looker) in benches.items()
    }
    for point, (operator, looker) in benches.items():
        if point in LOOKING[:2]:
            looker.held(runs[point])
        else:
            patiently((operator.folder / "begun-0").exists, "the program to begin")
    waking, retiring, wishing, crashing, adopting = (benches[point][0] for point in LOOKING)
    record = retiring.record()
    record.refresh()
    record.append(CarriedBy(flow_run="another"))
    (process,) = processes_of(runs["prefect.adopt"])
    os.kill(process, signal.SIGKILL)
    benches["prefect.adopt"][1].reaches(runs["prefect.adopt"], "Crashed")
    worker.kill()
    for point in ("prefect.wish", "prefect.crash"):
        kill_each(processes_of(runs[point]))
    benches["prefect.wish"][1].cancel(runs["prefect.wish"])
    waking.release()
    choices.run_again(waking.record(), who="ada")
    # when each poller is killed at its step, and the next one comes
    lookers = ((poll, waking), (poll, retiring), (reconcile, wishing), (later, crashing), (reconcile, adopting))
    with ThreadPoolExecutor(2) as pollers:
        for process in pollers.map(lambda at: at[0][0](at[0][1], **{POINT: at[1]}), zip(lookers, LOOKING, strict=True)):
            assert is_killed(process), process.stdout + process.stderr
        assert is_killed(later(crashing, **{POINT: "prefect.adopt"}))
        for process in pollers.map(lambda at: at[0](at[1]), lookers):
            assert process.returncode == 0 and "not done" not in process.stdout, process.stdout + process.stderr
    # then
    worker.start()
    looks = {point: looker for point, (_, looker) in benches.items()}
    assert looks["prefect.retire"].run(runs["prefect.retire"]).state.name == "HandedOver"
    assert wishing.state().finished.outcome == "stopped"
    assert looks["prefect.crash"].run(runs["prefect.crash"]).state.name == "Crashed"
    for operator in (crashing, adopting):
        operator.release()
    for operator in (waking, crashing, adopting):
        patiently(lambda operator=operator: operator.state().finished, "the end of the job")
        assert operator.state().finished.outcome == "succeeded"
    assert [len(operator.state().submissions) for operator in (waking, wishing, crashing, adopting)] == [2, 1, 1, 1]
    assert [len(set(operator.carriers())) for operator in (waking, wishing, crashing, adopting)] == [1, 1, 2, 2]


def later(operator, **changes: str) -> subprocess.CompletedProcess[str]:
    """``reconcile`` in a process whose clock is ahead."""
    text = (
        "import asyncio, pathlib, types, sys\n"
        "from support.reconciled import reconcile_later\n"
        "bench = types.SimpleNamespace(runs=pathlib.Path(sys.argv[1]), lineage=sys.argv[2])\n"
        "print(asyncio.run(reconcile_later(bench)))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", text, str(operator.runs), operator.lineage],
        cwd=operator.folder,
        env=operator.environment(PYTHONPATH=os.pathsep.join(sys.path), **changes),
        capture_output=True,
        text=True,
        timeout=120,
    )
