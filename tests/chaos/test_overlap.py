"""The overlap trials: nothing of ours is lost, the judge can fail, and nothing is left running."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.marked_processes import kill_each, processes_with
from support.waiting import until

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "overlap.py"
SEED = 1000
FIELDS = {"trials", "wrong", "deleted", "torn", "lost", "failed", "resumes", "commits", "seconds", "first_lost_seeds"}

SWEEP = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import overlap
from overlap_trials.append_only import AppendOnly
from overlap_trials.schedule import Plan, Schedule, Stop, Turn
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores import pin, resume

def draw(seed):
    plans = (
        Plan(Epoch(0, 1, 0), 6, (Stop(3, 0.0),)),
        Plan(Epoch(0, 2, 0), 2, (Stop(0, seed / 12),)),
        Plan(Epoch(0, 3, 0), 2),
    )
    turns = (Turn((0,)), Turn((1,)), Turn((0,)), Turn((1,)), Turn((2,)))
    return Schedule(seed, 2, plans, Epoch(0, 4, 0), turns, (), frozenset())

overlap.draw = draw
{sabotage}
sys.exit(overlap.main(sys.argv[1:], {{"append_only": AppendOnly}}))
"""
"""Twelve trials in which the new execution is stopped ever later in its resume, while the old one saves and rotates."""
NOTHING = ""
THE_EPOCH_DOES_NOT_COUNT = (
    "by_step = lambda self: (self.step, self.epoch.number, self.path); "
    "resume.greatest_first = lambda names: iter(sorted(map(Publication.parse, names), key=by_step, reverse=True))"
)
NOTHING_IS_IMPORTED = "pin._import = lambda store, attempt, resume: resume.publication.path"
NAMES_ARE_LISTED_ONCE = "resume.MOST_LOOKS = 0"


class Run:
    """The script, started with a mark in its environment by which all of its processes are found."""

    def __init__(self, folder: Path, command: list[str | Path]) -> None:
        self.mark = f"OVERLAP_MARK={uuid.uuid4().hex}"
        self.folder = folder
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *command, "--folder", folder],
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> str:
        """What it printed, once it has ended well and left nothing."""
        printed, said = self.process.communicate(timeout=240)
        assert (self.process.returncode, said) == (0, "")
        assert self.left() == []
        assert list(self.folder.iterdir()) == []
        return printed

    def left(self) -> list[int]:
        """Its processes that are there, zombies aside."""
        return processes_with(self.mark)

    def wait_for_writers(self) -> None:
        """Wait until trials are going on: the script, its workers, and writers."""
        until(lambda: len(self.left()) >= 4, "trials are going on")


@pytest.fixture
def start() -> Iterator[Any]:
    """Start the script, in memory where there is such a folder; whatever a test leaves of it is ended and deleted."""
    runs: list[Run] = []
    memory = "/dev/shm"

    def start(*command: str | Path) -> Run:
        folder = tempfile.mkdtemp(prefix="test-overlap-", dir=memory if os.access(memory, os.W_OK) else None)
        runs.append(Run(Path(folder), list(command)))
        return runs[-1]

    yield start
    for run in runs:
        kill_each(run.left())
        run.process.communicate()
        shutil.rmtree(run.folder)


def tallies(printed: str) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = json.loads(printed)
    return parsed


def test_ours_loses_nothing_in_trials_that_cost_the_others_saves(start: Any) -> None:
    # given the three designs and the same trials for each
    run = start(SCRIPT, "--trials", "12", "--seed", str(SEED), "--json")
    # when they have gone through them
    counts = tallies(run.end())
    # then ours resumed right every time, deleted nothing, tore nothing, and no execution failed
    assert list(counts) == ["append_only", "pointer", "highest_step"]
    assert all(set(count) == FIELDS and count["trials"] == 12 for count in counts.values())
    ours = counts["append_only"]
    assert [ours[column] for column in ("wrong", "deleted", "torn", "lost", "failed")] == [0, 0, 0, 0, 0]
    assert ours["first_lost_seeds"] == []
    # and it was a trial: each has a last execution and more, and the others lost in each column
    assert ours["resumes"] > 2 * 12 and ours["commits"] > 4 * 12
    for name in ("pointer", "highest_step"):
        assert counts[name]["lost"] >= 3
        assert counts[name]["wrong"] and counts[name]["deleted"]
        assert SEED <= counts[name]["first_lost_seeds"][0] < SEED + 12
    assert counts["pointer"]["torn"] or counts["highest_step"]["torn"]


@pytest.mark.parametrize(
    ("sabotage", "lost"),
    [
        (NOTHING, set()),
        (THE_EPOCH_DOES_NOT_COUNT, {"wrong"}),
        (NAMES_ARE_LISTED_ONCE, {"wrong"}),
        (NOTHING_IS_IMPORTED, {"torn", "deleted"}),
    ],
    ids=["whole", "the epoch does not count", "names are listed once", "nothing is imported"],
)
def test_each_part_of_append_only_is_needed_and_the_judge_misses_it(start: Any, sabotage: str, lost: set[str]) -> None:
    # given our own design, whole or without one of its parts
    program = SWEEP.format(sabotage=sabotage)
    # when a resume is stopped at one place after the other
    run = start("-c", program, BENCHMARKS, "--trials", "12", "--seed", "0", "--design", "append_only", "--json")
    # then the judge finds what that part is for, and nothing where none is missing
    counts = tallies(run.end())["append_only"]
    assert {column for column in ("wrong", "deleted", "torn", "failed") if counts[column]} == lost


def test_a_reader_gets_rates_and_for_a_zero_the_bound_that_it_proves(start: Any) -> None:
    printed = start(SCRIPT, "--trials", "4", "--seed", str(SEED), "--design", "append_only").end()
    assert re.search(r"^append_only +4( +0 \(< 75\.00 %\)){4}$", printed, re.MULTILINE)
    assert "rule of three" in printed


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name
)
def test_whatever_ends_the_script_ends_its_writers_the_stopped_ones_too(start: Any, number: signal.Signals) -> None:
    # given trials that are going on
    run = start(SCRIPT, "--trials", "1000", "--design", "append_only")
    run.wait_for_writers()
    # when the script is interrupted
    os.kill(run.process.pid, number)
    printed, said = run.process.communicate(timeout=30)
    # then it says nothing more, and all that it had started is gone; where it could, it took its files away too
    assert (printed, said) == ("", "")
    assert run.process.returncode == (-9 if number is signal.SIGKILL else 128 + number)
    if number is signal.SIGKILL:
        until(lambda: run.left() == [], "all writers are gone")
    else:
        assert run.left() == []
        assert list(run.folder.iterdir()) == []


AN_INTERRUPTION_ONCE_A_WRITER_WAS_WAITED_FOR = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from overlap_trials.processes import Processes

def interrupt(frame, event, function):
    if event == "c_return" and function is os.waitpid:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
writers = Processes()
writers.run(0, lambda: None)
sys.setprofile(interrupt)
try:
    writers.settle()
finally:
    writers.kill_all()
    assert writers.exit_codes() == {0: 0}
"""


def test_a_writer_that_was_waited_for_is_not_killed_again_by_an_interruption(start: Any) -> None:
    # given an interruption that comes before it is written down that the writer has ended
    run = start("-c", AN_INTERRUPTION_ONCE_A_WRITER_WAS_WAITED_FOR, BENCHMARKS)
    # then it waits for that
    printed, said = run.process.communicate(timeout=30)
    assert (run.process.returncode, printed, said) == (143, "", "")


class TestJudge:
    """The judge by itself, over logs and saves that are made by hand."""

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        before = set(sys.modules)
        from overlap_trials import judge, saves

        class Bench:
            Mark, judge_entries = saves.Mark, staticmethod(judge.judge)

            def __init__(self) -> None:
                self.entries: list[dict[str, Any]] = []

            def save(self, epoch: int, step: int, place: str = "") -> Any:
                """Write and commit a save."""
                mark = saves.Mark(epoch, step, f"{epoch}-{step}")
                folder = tmp_path / (place or mark.nonce)
                saves.write_files(folder, mark, lambda: None)
                self.entries.append({"kind": "saving", "mark": vars(mark)})
                self.entries.append({"kind": "committed", "mark": vars(mark), "place": str(folder)})
                return folder

            def resume(self, epoch: int, folder: Path | None) -> None:
                """Resume from what lies in a folder, as an execution does."""
                self.entries.append({"kind": "resuming", "epoch": epoch})
                mark = None if folder is None else vars(saves.read_files(folder))
                self.entries.append({"kind": "resumed", "epoch": epoch, "mark": mark})

            def verdict(self, keep: int = 2) -> Any:
                return judge.judge(self.entries, keep)

            read = staticmethod(saves.read_files)
            Torn, Gone, SIGN = saves.Torn, saves.Gone, saves.SIGN

        yield Bench()
        for name in {name for name in sys.modules if name.startswith("overlap_trials")} - before:
            del sys.modules[name]

    def test_the_greatest_by_epoch_then_step_is_right_and_all_else_is_wrong(self, bench: Any) -> None:
        old, first, second = bench.save(1, 900), bench.save(2, 10), bench.save(2, 20)
        bench.resume(3, second)
        assert bench.verdict().wrong == []
        bench.resume(4, first), bench.resume(5, old), bench.resume(6, None)
        assert len(bench.verdict().wrong) == 3

    def test_who_started_before_anything_was_committed_owes_nothing_nor_does_an_old_one_to_a_newer(
        self, bench: Any
    ) -> None:
        bench.resume(1, None)
        bench.save(2, 10)
        bench.resume(1, None)
        assert bench.verdict().wrong == []

    def test_a_newest_save_that_is_gone_or_written_over_is_deleted(self, bench: Any) -> None:
        kept, gone = bench.save(1, 10, "a"), bench.save(1, 20, "b")
        assert bench.verdict().deleted == []
        (gone / bench.SIGN).unlink()
        assert len(bench.verdict().deleted) == 1
        bench.save(0, 10, kept.name)
        assert len(bench.verdict().deleted) == 2

    def test_what_its_own_writer_or_all_of_them_have_outdone_may_go(self, bench: Any) -> None:
        for step in (10, 20, 30):
            bench.save(1, step)
        (bench.save(0, 90) / bench.SIGN).unlink()
        assert bench.verdict().deleted == []

    def test_mixed_cut_off_and_missing_files_are_torn(self, bench: Any) -> None:
        mixed, cut, missing = bench.save(1, 10), bench.save(1, 20), bench.save(1, 30)
        (mixed / "optimizer.pt").write_bytes((cut / "optimizer.pt").read_bytes())
        (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-1])
        (missing / "rng_state.pth").unlink()
        with pytest.raises(bench.Torn, match="mixes"):
            bench.read(mixed)
        with pytest.raises(bench.Torn, match="does not hold"):
            bench.read(cut)
        with pytest.raises(bench.Gone):
            bench.read(missing)
