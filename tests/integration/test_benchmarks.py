"""The table of speeds can be made: in a size that says nothing about speed, and no time is looked at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from support.environment import environment_without
from support.marked_processes import kill_each

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RUN = BENCHMARKS / "run.py"
HERE = ("publication", "save", "latest", "start", "relay", "silence", "replacement", "record", "holds", "identity")
MEASURED = (*HERE, "publication-s3", "latest-s3", "record-s3", "transfer-s3")
REPORTED = ("save", "transfer-s3")
"""Rows without a target: what they cost is shown beside the others."""


def run(*options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, RUN, "--folder", folder, *options],
        env=environment_without("DISPATCH_", "SLURM_"),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_row_is_measured_beside_its_bare_limit(tmp_path) -> None:
    # when all rows are measured in their smallest form
    made = run("--json", "--scale", "small", "--repeat", "1", folder=tmp_path)
    # then each line says what it found, what it is held against, and whether that is met
    assert made.returncode == 0, made.stderr
    table = json.loads(made.stdout)
    assert {"cores", "filesystem", "python", "load_at_start", "load_at_end"} <= set(table["machine"])
    lines = table["lines"]
    assert tuple(dict.fromkeys(line["row"] for line in lines)) == (*MEASURED, "not-built")
    for line in lines:
        built = line["row"] != "not-built"
        assert (line["ours"] is not None) == (line["pairs"] > 0) == bool(line["unit"]) == built, line
        assert (line["bare"] is None) == (line["ratio"] is None), line
        assert (line["target"] is None) == (line["met"] is None), line
        assert not built or line["row"] in REPORTED or line["target"], line
    # and nothing is left behind
    assert list(tmp_path.iterdir()) == []


def test_one_row_is_shown_to_people(tmp_path) -> None:
    made = run("--only", "record", "--scale", "small", "--repeat", "1", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    facts, _, heads, _, line, *_ = made.stdout.splitlines()
    assert "python: " in facts and "filesystem: " in facts
    assert heads.split() == ["row", "what", "ours", "bare", "ratio", "pairs", "target", "figure", "met"]
    assert line.startswith("record") and "≤ 100 ms" in line


def test_an_unknown_row_is_refused(tmp_path) -> None:
    made = run("--only", "everything", folder=tmp_path)
    assert made.returncode == 2
    assert "everything" in made.stderr


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        ("run.py", ("--repeat", "²"), "'²' is not a number of pairs; use 1 or more"),
        ("run.py", ("--folder", "/nonexistent"), "'/nonexistent' is not a folder; make it first"),
        ("simulate.py", ("--seeds", "0"), "'0' is not a number of seeds; use 1 or more"),
        ("simulate.py", ("--seeds", "-1"), "'-1' is not a number of seeds; use 1 or more"),
        ("simulate.py", ("--workers", "0"), "'0' is not a number of processes; use 1 or more"),
        ("overlap.py", ("--trials", "0"), "'0' is not a number of trials; use 1 or more"),
        ("overlap.py", ("--folder", "/nonexistent"), "'/nonexistent' is not a folder; make it first"),
    ],
    ids=lambda given: given if isinstance(given, str) and given.endswith(".py") else "",
)
def test_a_bad_option_is_one_clear_line(script: str, options: tuple[str, ...], said: str) -> None:
    made = subprocess.run([sys.executable, BENCHMARKS / script, *options], capture_output=True, text=True, timeout=60)
    assert made.returncode == 2 and made.stdout == ""
    assert made.stderr.splitlines()[-1] == f"{script}: error: argument {options[0]}: {said}"
    assert "Traceback" not in made.stderr


WATCHES = ("run.py", ("--only", "silence"), lambda pids: any(b"sleep" in words(pid) for pid in pids))
SIMULATES = ("simulate.py", ("--seeds", "100000", "--workers", "2"), lambda pids: sum(map(runs_seeds, pids)) == 3)


@pytest.mark.parametrize(
    ("script", "options", "begun", "number"),
    [(*WATCHES, signal.SIGINT), (*WATCHES, signal.SIGHUP), (*SIMULATES, signal.SIGTERM)],
    ids=["run.py SIGINT", "run.py SIGHUP", "simulate.py SIGTERM"],
)
def test_whatever_ends_a_benchmark_ends_what_it_started(
    script: str, options: tuple[str, ...], begun: Callable[[list[int]], bool], number: signal.Signals, tmp_path: Path
) -> None:
    # given a benchmark that has started processes
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, BENCHMARKS / script, *options],
        env={**os.environ, "BENCHMARK_MARK": mark, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        give_up = time.monotonic() + 60
        while not begun(marked(mark)):
            assert process.poll() is None and time.monotonic() < give_up, process.communicate()
            time.sleep(0.02)
        # when it is interrupted
        os.kill(process.pid, number)
        printed, said = process.communicate(timeout=60)
        # then it says so, and nothing of it is left
        assert (process.returncode, printed) == (128 + number, "")
        assert "Traceback" not in said and "Error" not in said
        assert marked(mark) == []
        assert list(tmp_path.iterdir()) == []
    finally:
        kill_each(marked(mark))
        process.communicate()


def marked(mark: str) -> list[int]:
    """The processes that carry the mark, zombies aside."""
    return [int(place.name) for place in Path("/proc").glob("[0-9]*") if mark.encode() in words(place.name, "environ")]


def runs_seeds(pid: int) -> bool:
    """Whether it is past its imports and catches SIGTERM: bit 14 of SigCgt (proc_pid_status)."""
    try:
        caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> 14 & 1)


def words(pid: int | str, file: str = "cmdline") -> bytes:
    """What a process was started with; nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""
