"""One trial: the writers run, are stopped and go on as the schedule says; then a last execution resumes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overlap_trials.design import Design, Setting
from overlap_trials.execution import execute
from overlap_trials.judge import Verdict, judge
from overlap_trials.log import Log
from overlap_trials.moments import Moments
from overlap_trials.processes import Processes
from overlap_trials.schedule import Plan, Schedule, undisturbed
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token

_CLOSING = -1
_KILLED = -9


@dataclass(frozen=True)
class Contestant:
    """A design that takes part.

    Args:
        name: its name.
        make: makes it for one execution.
        usual: how many operations on the file system its phases have, one that loads and one that saves.
    """

    name: str
    make: Callable[[Setting], Design]
    usual: tuple[int, int] = (1, 1)


def measure(name: str, make: Callable[[Setting], Design], folder: Path) -> Contestant:
    """Count what the phases of a design consist of, in two executions that nobody disturbs."""
    keep = 2
    try:
        entries = _play(Contestant(name, make), undisturbed(saves=keep + 2, keep=keep), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts = [entry["counts"] for entry in entries if entry["kind"] == "ended"]
    if len(counts) < 2:
        raise RuntimeError(f"design {name!r} fails when nobody disturbs it: {entries}")
    return Contestant(name, make, (counts[1][0], counts[1][-1]))


def run_trial(contestant: Contestant, schedule: Schedule, folder: Path) -> Verdict:
    """Run and judge one trial.

    Args:
        contestant: whose design.
        schedule: what happens.
        folder: where its files lie meanwhile; it must not be there yet, and is not there afterwards.
    """
    try:
        return judge(_play(contestant, schedule, folder), schedule.keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _play(contestant: Contestant, schedule: Schedule, place: Path) -> list[dict[str, Any]]:
    shelf = place / "shelf"
    shelf.mkdir(parents=True)
    log = Log(place / "log")
    tokens: dict[tuple[int, int], str] = {}

    def work_of(plan: Plan) -> Callable[[], None]:
        setting = Setting(shelf, plan.epoch, _attempt_of(plan.epoch, tokens), schedule.keep)
        moments = Moments(plan.stops, contestant.usual)
        return lambda: execute(contestant.make, setting, plan.saves, moments, log)

    works = [work_of(plan) for plan in schedule.plans]
    processes = Processes()
    try:
        for turn in schedule.turns:
            for number in turn.writers:
                processes.run(number, works[number])
            processes.settle(turn.victim, turn.delay)
        for number in schedule.killed:
            processes.kill(number)
        for group in schedule.ending:
            while left := processes.left() & set(group):
                for number in group:
                    if number in left:
                        processes.run(number, works[number])
                processes.settle()
        processes.run(_CLOSING, work_of(Plan(schedule.closing, 0)))
        processes.settle()
        for number, code in processes.exit_codes().items():
            if code not in (0, _KILLED):
                log.say("crashed", why=f"writer {number} came out with {code}")
        return log.entries()
    finally:
        processes.kill_all()
        log.close()


def _attempt_of(epoch: Epoch, tokens: dict[tuple[int, int], str]) -> str:
    """An attempt as a scheduler would make it: one token per submission, and the restart."""
    submission = (epoch.generation, epoch.submission)
    return attempt_of(tokens.setdefault(submission, new_token()), epoch.restart)
