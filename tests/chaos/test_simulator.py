"""The simulator over many seeds: no guarantee is violated, the world was nasty, and a seed replays exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from prefect_dispatch.testing.simulator import simulate
from support.full_form import FULL

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "simulate.py"
SEEDS = int(os.environ.get("DISPATCH_TESTS_SEEDS", "10000" if FULL else "2000"))
WORKERS = 2
PATIENCE_SECONDS = max(300, SEEDS)
NASTY = {
    "ambiguous answer",
    "crash of a supervisor",
    "duplicate execution",
    "exit 190",
    "exit 191",
    "exit 194",
    "fact abandoned",
    "fact restarts_forbidden",
    "fact retired",
    "killed program",
    "landing without an answer",
    "late landing",
    "lift continue_from",
    "lift from_scratch",
    "lift run_again",
    "lift stop",
    "lost accounts",
    "lost answer of the scheduler",
    "lost node",
    "lost reply of a store",
    "out of memory",
    "outage of the scheduler",
    "person asked about an unknown state",
    "preemption",
    "process killed",
    "program failure",
    "purge",
    "refused submission",
    "requeue by us",
    "resume",
    "signal ceased",
    "rotation",
    "scheduler failure",
    "stall",
    "start from scratch",
    "stepped clock",
    "stop by an administrator",
    "stop requested: abandon",
    "stop requested: suspend",
    "store failure",
    "submission that never lands",
    "supersession",
    "supersession of what is finished",
    "supersession that lost",
    "supervisor that gave up",
    "unexplained notice",
    "unknown word",
    "very late landing",
}
"""What must have happened somewhere, or the seeds prove little."""


@pytest.fixture(scope="module")
def result() -> dict:
    """What the seeds of this run came to."""
    command = [sys.executable, PROGRAM, "--seeds", str(SEEDS), "--workers", str(WORKERS), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_no_guarantee_is_violated_in_any_seed(result):
    assert result["seeds"] == SEEDS
    assert result["failing"] == {}, "replay with benchmarks/simulate.py --replay SEED"


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_everything_nasty_happened(result):
    assert NASTY - set(result["happened"]) == set()


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_jobs_succeeded_and_were_held(result):
    # given that a world in which nothing comes to an end would prove nothing
    ends = Counter(result["ends"])
    # then most lineages are finished, and some are held
    assert ends["finished"] > SEEDS / 4
    assert ends["held"] > SEEDS / 20
    assert ends["finished"] + ends["held"] == SEEDS


def test_a_seed_replays_step_by_step_in_any_process():
    # given two processes that hash text differently
    def replay(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, PROGRAM, "--replay", "7"]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True).stdout

    # when both run one seed
    first, second = replay("1"), replay("2")
    # then they take the same steps, and this process takes them too
    assert first == second == simulate(7).trace
    assert len(first.splitlines()) > 100


def test_a_trace_tells_who_did_what_and_when():
    # given
    outcome = simulate(7)
    # when
    lines = outcome.trace.splitlines()
    # then each step is one line, with the facts that were appended among them
    assert len(lines) == len(outcome.steps)
    assert any("director" in line and "fact 1: opened" in line for line in lines)
    assert [step.number for step in outcome.steps] == list(range(1, len(lines) + 1))
    assert all(earlier.at <= later.at for earlier, later in zip(outcome.steps, outcome.steps[1:], strict=False))
