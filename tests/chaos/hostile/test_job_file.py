"""A job file as an attack on the command line that reads it: one clear line, soon, and nothing is run."""

from __future__ import annotations

import json
import subprocess
import sys

MOST_SECONDS = 30.0
READS_ALL = """
import json, resource, sys, time
from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli import plan
limit = 600 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    began = time.monotonic()
    code = main(["plan", path])
    print(json.dumps([path, code, time.monotonic() - began]), flush=True)
"""


def powers(of: str, first: str) -> str:
    """Eight levels, each of which holds the one before ten times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} {of % ', '.join([f'*a{level - 1}'] * 10)}")
    return "\n".join(lines)


FILES = {
    "aliases": powers("[%s]", "[x]"),
    "merges": powers("{<<: [%s]}", "{k: v}"),
    "many merges": "a: &a {k: v, l: w}\nb: {<<: [" + "*a, " * 9000 + "*a]}",
    "a merge of itself": "&a {<<: *a}",
    "itself": "&a [*a]",
    "brackets": "[" * 100_000,
    "braces": "{a: " * 50_000,
    "indentation": "".join(f"{' ' * level}a:\n" for level in range(1400)),
    "a long number": "lineage: " + "9" * 100_000,
    "a number of base 60": "lineage: 1" + ":1" * 50_000,
    "a fraction of base 60": "lineage: 1" + ":1" * 50_000 + ".5",
    "a number of base 16": "lineage: 0x" + "f" * 100_000,
    "many keys": "".join(f"k{number}: 1\n" for number in range(40_000)),
    "many anchors": "".join(f"- &a{number} x\n" for number in range(40_000)),
    "more than 1 MiB": "lineage: " + "x" * 2**20,
    "a call": "a: !!python/object/apply:pathlib.Path.touch [{run}]",
    "an object": "!!python/object/new:type {args: [a]}",
    "a module": "a: !!python/module:antigravity",
    "escapes": 'lineage: "\\e]52;c;aGk=\\a\\x9b31m\\u202e"',
    "escapes in a key": '"\\e[2J\\x9b\\u202e": 1',
    "an unpaired surrogate": 'lineage: "\\ud800"',
    "NUL": "a\0b: 1",
}


def test_no_job_file_hangs_fills_or_runs_anything(tmp_path):
    # given
    paths = []
    for number, text in enumerate(FILES.values()):
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(text.replace("{run}", str(tmp_path / "ran")))
    # when
    done = subprocess.run(
        [sys.executable, "-c", READS_ALL, *map(str, paths)], capture_output=True, text=True, timeout=200
    )
    # then
    assert done.returncode == 0, done.stderr[-1000:]
    for name, line in zip(FILES, done.stdout.splitlines(), strict=True):
        _, code, seconds = json.loads(line)
        assert (name, code) == (name, 2)
        assert seconds < MOST_SECONDS, name
    lines = done.stderr.splitlines()
    assert len(lines) == len(FILES)
    assert [line for line in lines if not line.isprintable() or len(line) > 1000] == []
    assert not (tmp_path / "ran").exists()
