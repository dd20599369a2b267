"""The table of speeds can be made: in a size that says nothing about speed, and no time is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.environment import environment_without

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
MEASURED = ("publication", "save", "latest", "start", "relay", "silence", "replacement", "record")


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
        assert not built or line["row"] == "save" or line["target"], line
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
