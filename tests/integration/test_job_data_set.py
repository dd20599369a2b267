"""Data sets by message: what a program declares belongs to each of its saves, and comes back where it lay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from prefect_dispatch.errors import DispatchError
from support.waiting import until

MESSAGES = {"kind": "messages"}
BEGIN = (
    "import json, os, sys, time\n"
    "folder, source = os.environ['DISPATCH_EXEC_DIR'], os.environ['DISPATCH_RESUME_FROM']\n"
    "def write(name, text):\n"
    "    os.makedirs(os.path.dirname(f'{folder}/{name}'), exist_ok=True)\n"
    "    open(f'{folder}/{name}', 'w').write(text)\n"
    "    return f'{folder}/{name}'\n"
    "def say(kind, **payload): print(f'openjd_checkpoint_{kind}: {json.dumps(payload)}', flush=True)\n"
    "saves, start = 0, os.getcwd()\n"
    "def save(**payload):\n"
    "    global saves\n"
    "    say('save', **payload)\n"
    "    saves += 1\n"
    "    while not os.path.exists(f'{start}/published-{saves}'): time.sleep(0.01)\n"
)
TELL = (
    "walk = [os.path.join(at, name) for at, _, names in os.walk(source) for name in names]\n"
    "found = {os.path.relpath(path, source): open(path).read() for path in walk}\n"
    "print('TOLD', json.dumps([found, os.environ['DISPATCH_RESUME_STATE']]))\n"
)


@pytest.fixture(params=["folder", "bucket"])
def bench(request: pytest.FixtureRequest) -> Any:
    """A lineage whose root is a folder, and one whose root is in a bucket."""
    return request.getfixturevalue("job" if request.param == "folder" else "bucket_job")


def run(bench: Any, text: str, saves: int = 0, number: int = 1) -> subprocess.CompletedProcess[bytes]:
    """Run a program that waits at each of its saves until it is published."""
    process = bench.start(sys.executable, "-c", BEGIN + text, number=number, saves=MESSAGES)
    for save in range(1, saves + 1):
        until(lambda save=save: published(bench) >= save, f"save {save}")
        (bench.folder / f"published-{save}").touch()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return subprocess.CompletedProcess(process.args, 0, output, errors)


def published(bench: Any) -> int:
    try:
        return len(bench.steps())
    except DispatchError:
        return 0  # There is no root yet.


def resumed(bench: Any, number: int = 2) -> Any:
    """What the next execution finds, and its state."""
    ended = run(bench, TELL, number=number)
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith(b"TOLD ")]
    return json.loads(line[5:])


def test_what_was_declared_belongs_to_the_save_and_comes_back_where_it_lay(bench: Any) -> None:
    # given a program that declares files and a folder bit by bit, and saves with a file of its own
    text = (
        "say('files', files=[write('out/1.exr', 'one')])\n"
        "write('scratch/deep/a', 'a'); write('scratch/b', 'b'); write('not-declared', 'x')\n"
        "os.symlink('b', f'{folder}/scratch/link')\n"
        "say('files', dirs=[f'{folder}/scratch/'], mode='ACCUMULATE')\n"
        "save(state='3,2,3', file=write('model', 'weights'))\n"
    )
    run(bench, text, saves=1)
    assert bench.steps() == [1]
    assert bench.lineage_root.check() == []
    # then the next execution has all of it, at the same places
    found, state = resumed(bench)
    whole = {"out/1.exr": "one", "scratch/deep/a": "a", "scratch/b": "b", "scratch/link": "b", "model": "weights"}
    assert (found, state) == (whole, "3,2,3")


def test_what_is_written_later_does_not_change_a_save_and_the_older_one_stays(bench: Any) -> None:
    # given a program that writes over a declared file between two saves, and after them
    text = (
        "say('files', files=[write('frame', 'first')])\n"
        "save(state='1')\n"
        "write('frame', 'second!'); save(state='2')\n"
        "write('frame', 'torn')\n"
    )
    run(bench, text, saves=2)
    # then both are saves, and each has what it had when it was made
    assert bench.steps() == [1, 2]
    assert resumed(bench) == [{"frame": "second!"}, "2"]
    older = bench.lineage_root.publications()[0]
    assert [file.size for file in bench.lineage_root.store.files(older.path)] == [len("first")]


def test_a_reset_begins_anew_and_a_save_with_nothing_declared_is_its_file_alone(job: Any) -> None:
    text = (
        "say('files', files=[write('a', 'a')])\n"
        "say('files', files=[write('b', 'b')], mode='RESET'); save(state='b')\n"
        "say('files', mode='RESET'); save(file=write('c', 'c'))\n"
    )
    run(job, text, saves=2)
    first, second = job.lineage_root.publications()
    assert os.listdir(job.root / first.path) == ["b"]
    assert (job.root / second.path).read_text() == "c"


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("files=['/etc/hostname']", "is not inside the execution's own folder"),
        ("files=[folder + '/none']", "cannot be seen"),
        ("files=[write('a', 'a'), folder + '/../x']", "is not inside"),
        ("dirs=[write('a', 'a')]", "is no folder"),
        ("files=[folder + '/link']", "is no file"),
        ("files=[folder + '/fifo']", "is no file"),
    ],
)
def test_case_23_what_can_be_no_part_is_refused_whole_and_the_next_save_is_made_without_it(
    job: Any, declared: str, reason: str
) -> None:
    text = (
        "os.symlink('/etc/hostname', f'{folder}/link'); os.mkfifo(f'{folder}/fifo')\n"
        f"say('files', {declared})\n"
        "save(file=write('model', 'w'))\n"
    )
    run(job, text, saves=1)
    (entry,) = job.journal("refused")
    assert reason in entry["reason"], entry
    (save,) = job.lineage_root.publications()
    assert (job.root / save.path).read_text() == "w"


def test_case_23_a_declared_file_that_changes_after_the_message_makes_no_save(job: Any) -> None:
    text = (
        "say('files', files=[write('a', '1')])\n"
        "say('save', state='x')\n"
        "end = time.time() + 2\n"
        "while time.time() < end: write('a', str(time.time_ns()))\n"
    )
    run(job, text)
    assert job.steps() == []
    (entry,) = job.journal("refused")
    assert "changed" in entry["reason"]


def test_a_data_set_has_a_bound(job: Any) -> None:
    text = (
        "names = [write(str(number), '') for number in range(10001)]\n"
        "for begin in range(0, 10001, 1000): say('files', files=names[begin:begin + 1000])\n"
        "say('files', files=[write('a', 'a')], mode='RESET')\n"
        "save(state='x')\n"
    )
    run(job, text, saves=1)
    (entry,) = job.journal("refused")
    assert "would have 10,001 names, and has at most 10,000" in entry["reason"]
    (save,) = job.lineage_root.publications()
    assert os.listdir(job.root / save.path) == ["a"]


def test_a_data_set_is_refused_where_saves_come_from_elsewhere(job: Any) -> None:
    text = "say('files', files=[write('a', 'a')])"
    assert job.python(BEGIN + text, saves={"kind": "explicit"}).returncode == 0
    (entry,) = job.journal("refused")
    assert "a data set is refused: saves.kind is 'explicit'" in entry["reason"]


def test_case_22_a_resume_status_counts_in_a_resumed_execution_alone(job: Any) -> None:
    # given one that was not resumed
    said = "say('resume_status', status='DISCARDED')\n"
    run(job, said + "save(file=write('a', 'a'))", saves=1)
    (entry,) = job.journal("refused")
    assert "was not resumed" in entry["reason"] and job.journal("resume_status") == []
    # when one is resumed
    second = run(job, said, number=2)
    # then it is noted, and told
    assert job.journal("resume_status", 2) == [{"status": "DISCARDED"}]
    assert b"dispatch: the program says that it discarded its save" in second.stdout
