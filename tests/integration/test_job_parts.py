"""Finished parts inside real executions: what is finished is not done again, and only that becomes a result."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.resume_choice import SCRATCH, ResumeChoice
from support.marked_processes import processes_with
from support.waiting import until

FILM = Path(__file__).resolve().parents[2] / "examples" / "render_frames.py"
BEGIN = (
    "import json, os, sys, time\n"
    "from prefect_dispatch.job import complete, completed, merge, remaining\n"
    "folder = os.environ['DISPATCH_EXEC_DIR']\n"
    "def write(name, text):\n"
    "    path = f'{folder}/{name}'\n"
    "    open(path, 'w').write(text)\n"
    "    return path\n"
    "def tell(value): print('TOLD', json.dumps(value), flush=True)\n"
)


@pytest.fixture(params=["folder", "bucket"])
def bench(request: pytest.FixtureRequest) -> Any:
    """A lineage whose root is a folder, and one whose root is in a bucket."""
    return request.getfixturevalue("job" if request.param == "folder" else "bucket_job")


def told(ended: Any) -> Any:
    """What the program told last."""
    assert ended.returncode == 0, ended.stdout
    lines = [line for line in ended.stdout.splitlines() if line.startswith(b"TOLD ")]
    return json.loads(lines[-1][5:])


def test_what_is_finished_is_not_done_again_and_a_result_is_made_of_all(bench: Any) -> None:
    # given an execution that finishes two of three parts, and writes a third without saying so
    first = bench.python(
        BEGIN
        + "complete('a', write('a', '1'), n=1); complete(2, write('b', '1')); write('c', '1'); tell(remaining('abc'))"
    )
    assert told(first) == ["b", "c"]
    # when the next one goes on
    program = (
        "left = remaining(['a', 2, 'c'])\n"
        "known = completed()\n"
        "complete('c', write('c', '2'))\n"
        "parts = merge(['a', 2, 'c'])\n"
        "tell([left, known, [[part.key, part.attempt, open(part.path).read()] for part in parts]])\n"
    )
    left, known, parts = told(bench.python(BEGIN + program, number=2))
    # then it had one to do
    assert left == ["c"]
    assert known == {"2": {}, "a": {"n": 1}}
    # and the file that had no entry is not in the result
    old, new = bench.attempt(1), bench.attempt(2)
    assert parts == [["a", old, "1"], ["2", old, "1"], ["c", new, "2"]]


def test_a_missing_part_is_named_and_nothing_is_merged(bench: Any) -> None:
    ended = bench.python(BEGIN + "complete('a')\nmerge(['a', *range(12)])")
    assert ended.returncode == 1
    said = ended.stderr
    assert b"12 of 13 parts are not finished: '0', '1'" in said and b"and 2 more; do them first" in said


def test_old_and_new_finish_one_part_side_by_side_and_the_new_ones_counts(job: Any, end: Any) -> None:
    # given an old execution that lives on
    wait = "complete('begun')\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    old = job.start(sys.executable, "-c", BEGIN + wait + "complete('a', write('a', 'old')); tell(completed())")
    until(lambda: list((job.root / "done").iterdir()) if (job.root / "done").is_dir() else None)
    # when its successor finishes a part, and it finishes the same one afterwards
    new = job.python(BEGIN + "complete('a', write('a', 'new'), by='new'); tell(0)", number=2)
    assert told(new) == 0
    (job.folder / "go").touch()
    # then each knows of its own, and the result has the new one's
    assert told(end(old)) == {"a": {}, "begun": {}}
    third = job.python(BEGIN + "tell([open(part.path).read() for part in merge('a')])", number=3)
    assert told(third) == ["new"]


def test_after_a_start_from_scratch_nothing_from_before_counts(job: Any) -> None:
    assert told(job.python(BEGIN + "complete('a'); tell(remaining('ab'))")) == ["b"]
    scratch = ResumeChoice(SCRATCH, Epoch(0, 2, 0).number)
    assert told(job.python(BEGIN + "tell(remaining('ab'))", number=2, choice=scratch)) == ["a", "b"]


def test_the_same_part_twice_keeps_the_first_word(bench: Any) -> None:
    program = "complete('a', write('a', '1'), n=1); complete('a', write('other', '2'), n=2)\n"
    program += "tell([completed(), [open(part.path).read() for part in merge('a')]])"
    assert told(bench.python(BEGIN + program)) == [{"a": {"n": 1}}, ["1"]]


def test_a_file_that_was_written_to_since_is_refused_by_name(job: Any) -> None:
    assert told(job.python(BEGIN + "complete('a', write('a', '1')); tell(0)")) == 0
    (job.root / "exec" / job.attempt() / "a").write_text("another")
    ended = job.python(BEGIN + "merge('a')", number=2)
    assert ended.returncode == 1
    assert b"part 'a' of" in ended.stderr and b"is not what it was when it was finished" in ended.stderr


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("complete('a', '/etc/hostname')", "is not inside of"),
        ("complete('a', folder + '/none')", "is not whole"),
        ("complete('')", "is empty"),
        ("complete(True)", "neither text nor a whole number"),
        ("complete(1.5)", "neither text nor a whole number"),
        ("complete('a', n=object())", "is not JSON"),
    ],
)
def test_what_cannot_be_noted_is_refused_and_not_finished(job: Any, call: str, why: str) -> None:
    program = f"try:\n    {call}\nexcept Exception as error: tell([str(error), remaining('a')])"
    text, left = told(job.python(BEGIN + program))
    assert why in text and left == ["a"]


def test_a_shell_has_the_same_commands(job: Any) -> None:
    helper = f"{sys.executable} -m prefect_dispatch.job"
    script = (
        f'for key in $({helper} remaining a b); do echo $key > "$DISPATCH_EXEC_DIR/$key"; '
        f'{helper} complete $key --path "$DISPATCH_EXEC_DIR/$key"; done; '
        f"cat $({helper} merge a b); {helper} merge a c; echo $?"
    )
    ended = job.run("sh", "-c", script)
    assert b"a\nb\n3\n" in ended.stdout, ended.stdout
    assert b"1 of 2 parts are not finished: 'c'" in ended.stderr


def test_a_film_that_is_killed_half_way_renders_the_rest_alone(job: Any, end: Any) -> None:
    # given a film of 30 frames that loses its wrapper in the middle
    frames = (sys.executable, str(FILM), "--frames", "30")
    process = job.start(*frames, "--seconds", "0.1")
    done = job.root / "done"
    until(lambda: done.is_dir() and len(os.listdir(done)) >= 10)
    process.send_signal(signal.SIGKILL)
    end(process)
    until(lambda: not processes_with(f"DISPATCH_ATTEMPT={job.attempt()}"), "nothing of it is left")
    finished = len(os.listdir(done))
    # when it runs again
    again = job.run(*frames, number=2)
    # then only the rest is rendered, and the film is whole
    assert again.returncode == 0, again.stdout
    rendered = int(again.stdout.partition(b" of 30 frames to render")[0].splitlines()[-1])
    assert rendered == 30 - finished
    assert b"film.pgm has 30 frames by 2 executions" in again.stdout
    assert (job.folder / "film.pgm").read_bytes().count(b"P5 64 48 255\n") == 30
