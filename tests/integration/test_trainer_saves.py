"""A real Trainer that is killed in the middle of its saves: what is published is whole, and what resumes goes on."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prefect_dispatch.stores.check import Severity
from support.full_form import FULL
from support.marked_processes import processes_with
from support.waiting import until

PROGRAM = str(Path(__file__).resolve().parents[2] / "examples" / "train_with_trainer.py")
LIBRARIES = ("torch", "transformers", "accelerate")
MISSING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
KILLS = 30 if FULL else 2
PATIENCE = 240.0
FREE: dict[str, str | None] = {"PYTHONPYCACHEPREFIX": None, "HF_HUB_OFFLINE": "1"}
"""Compiling all of torch anew takes longer than the test."""

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: pip install -e '.[trainer]'"),
    pytest.mark.timeout(PATIENCE * (KILLS + 3)),
]


def torn(folder: Path) -> list[Path]:
    """The saves that the Trainer has begun and not ended."""
    with contextlib.suppress(FileNotFoundError):
        saves = [place for place in folder.iterdir() if place.name.startswith("checkpoint-")]
        return [place for place in saves if not (place / "trainer_state.json").exists()]
    return []


def number_of_saves(job, number: int) -> int:
    """How many saves an execution has published."""
    folder = job.root / "pub"
    return sum(name.startswith(f"{number * 10**6:020d}-") for name in os.listdir(folder)) if folder.exists() else 0


def start(job, number: int, steps: int):
    arguments = ("--steps", str(steps), "--save-steps", "2", "--width", "256")
    with open(job.folder / f"log-{number}", "wb") as log:
        return job.start(
            sys.executable,
            PROGRAM,
            *arguments,
            number=number,
            saves={"kind": "huggingface"},
            variables=FREE,
            stdout=log,
            stderr=log,
        )


def latest(job) -> dict[str, object] | None:
    if not job.prepared:
        return None
    done = job.command("latest", "--root", str(job.root), "--json")
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def program_of(wrapper: int) -> int | None:
    """The process of the program: the child of the guardian, which is the child of the wrapper."""
    pid = wrapper
    for _ in range(2):
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            return None
        if len(children) != 1:
            return None
        pid = int(children[0])
    return pid


def last_line(job, number: int) -> str:
    lines = (job.folder / f"log-{number}").read_text().splitlines()
    return next(line for line in reversed(lines) if line.startswith("step "))


def test_a_trainer_that_is_killed_in_mid_save_goes_on_from_a_whole_one_with_its_optimiser(job) -> None:
    # given what the training comes to when nobody kills it
    steps = 25 * KILLS + 25
    alone = subprocess.run(
        [sys.executable, PROGRAM, "--steps", str(steps), "--save-steps", str(steps), "--width", "256"],
        env=job.environment(**FREE, DISPATCH_EXEC_DIR=str(job.folder / "alone"), DISPATCH_RESUME_FROM=""),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert alone.returncode == 0, alone.stderr
    undisturbed = alone.stdout.splitlines()[-1]
    assert undisturbed.startswith(f"step {steps}, optimiser at [{steps}], weights ")
    # when it is killed over and over in the middle of a save, the wrapper or the program by turns
    dice, left_torn, resumed = random.Random(20261130), 0, []
    for number in range(1, KILLS + 1):
        before = latest(job)
        wrapper = start(job, number, steps)
        folder = job.exec_folder(number)
        give_up, wanted = time.monotonic() + PATIENCE, dice.choice((1, 2, 3))
        while not (torn(folder) and number_of_saves(job, number) >= wanted):
            assert wrapper.poll() is None and time.monotonic() < give_up, (job.folder / f"log-{number}").read_text()
        time.sleep(dice.random() * 0.05)
        victim = wrapper.pid if number % 2 else program_of(wrapper.pid)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        wrapper.wait(60)
        until(lambda: not processes_with(f"DISPATCH_ATTEMPT={job.attempt(number)}"), "nothing of it is left")  # noqa: B023
        left_torn += bool(torn(folder))
        # then nothing torn is published, and it had gone on from the newest save
        after = latest(job)
        assert after is None or before is None or after["step"] >= before["step"]
        for place in torn(folder):
            assert not any(place.name in publication.path for publication in job.publications())
        resumed.append(before["step"] if before else 0)
    assert left_torn >= KILLS // 2 and all(step > 0 for step in resumed[1:]), (left_torn, resumed)
    # and the last one, which nobody kills, ends as if nothing had been
    newest = latest(job)
    wrapper = start(job, KILLS + 1, steps)
    assert wrapper.wait(PATIENCE) == 0, (job.folder / f"log-{KILLS + 1}").read_text()
    assert f"resume digits g0n{KILLS + 1}r0" in (job.folder / f"log-{KILLS + 1}").read_text()
    assert newest is not None and f"from step {newest['step']} of" in (job.folder / f"log-{KILLS + 1}").read_text()
    assert last_line(job, KILLS + 1) == undisturbed
    assert [fault for fault in job.lineage_root.check() if fault.severity is Severity.FAULT] == []
