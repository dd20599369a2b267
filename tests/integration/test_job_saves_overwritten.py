"""Saves that a program writes over, tears, repeats, or never made: what is published of them and what never is."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest

EXPLICIT = {"kind": "explicit"}
PUBLISH = (
    "import os, sys, time\n"
    "from prefect_dispatch.job import publish\n"
    "folder = os.environ['DISPATCH_EXEC_DIR']\n"
    "def write(name, text, mode='w'):\n"
    "    with open(folder + '/' + name, mode) as file: file.write(text)\n"
)
WAIT_FOR_ONE = "while not os.listdir(os.environ['DISPATCH_ROOT'] + '/pub'): time.sleep(0.01)\n"
TEAR = "write('s/w', '2222', 'r+'); os.kill(os.getpid(), 9)\n"


@pytest.mark.parametrize(
    ("saves", "program"),
    [
        (EXPLICIT, "os.mkdir(folder + '/s'); write('s/w', '11111111'); publish(folder + '/s', 5)\n"),
        (
            {"kind": "marker"},
            "os.mkdir(folder + '/s'); write('s/w', '11111111'); write('s.complete', '5')\n"
            + WAIT_FOR_ONE
            + "os.unlink(folder + '/s.complete')\n",
        ),
    ],
    ids=["explicit", "marker beside"],
)
def test_a_folder_that_is_torn_while_it_is_written_over_is_resumed_from_its_copy(
    job: Any, saves: dict[str, Any], program: str
) -> None:
    (job.root / "pub").mkdir(parents=True)
    ended = job.python(PUBLISH + program + TEAR, saves=saves)

    resumed = job.run("sh", "-c", "cat $DISPATCH_RESUME_FROM/w", number=2)

    assert (ended.returncode, job.steps()) == (128 + signal.SIGKILL, [5])
    assert b"11111111" in resumed.stdout


def test_a_marked_folder_that_is_written_into_with_its_marker_in_it_is_passed_over(job: Any) -> None:
    program = (
        "for step in (4, 5):\n"
        "    os.mkdir(f'{folder}/s-{step}'); write(f's-{step}/w', '1' * 80)\n"
        "    write(f's-{step}/.complete', str(step))\n"
        "while len(os.listdir(os.environ['DISPATCH_ROOT'] + '/pub')) < 2: time.sleep(0.01)\n"
        "write('s-5/w', '2222', 'r+'); os.utime(folder + '/s-5/w', (2e9, 2e9)); os.kill(os.getpid(), 9)\n"
    )
    (job.root / "pub").mkdir(parents=True)
    job.python(PUBLISH + program)

    resumed = job.run("sh", "-c", "echo step=$DISPATCH_RESUME_STEP; cat $DISPATCH_RESUME_FROM/w", number=2)

    assert b"step=4\n11111111" in resumed.stdout
    assert b"passed over" in resumed.stdout and b"written again" in resumed.stdout


def test_a_folder_that_was_written_anew_whole_is_not_resumed_under_its_older_step(
    job: Any, end: Any, wait_until: Any
) -> None:
    # given a marked folder that is written anew in the same sizes, with other times, and a wrapper that looks no more
    program = PUBLISH + (
        "def save(step):\n"
        "    if os.path.exists(folder + '/latest/.complete'): os.unlink(folder + '/latest/.complete')\n"
        "    write('latest/w', str(step) * 40); write('new', str(step))\n"
        "    for name in ('latest/w', 'new'): os.utime(f'{folder}/{name}', (1e9 + step, 1e9 + step))\n"
        "    os.rename(folder + '/new', folder + '/latest/.complete')\n"
        "os.mkdir(folder + '/s'); write('s/w', '55555555'); write('s/.complete', '5')\n"
        "os.mkdir(folder + '/latest'); save(10)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "save(20); open('saved', 'w').close(); time.sleep(60)\n"
    )
    process = job.start(sys.executable, "-c", program)
    wait_until(lambda: job.prepared and job.steps() == [5, 10])
    process.send_signal(signal.SIGSTOP)
    (job.folder / "go").touch()
    wait_until((job.folder / "saved").exists)
    process.kill()
    end(process)
    # when
    resumed = job.run("sh", "-c", "echo step=$DISPATCH_RESUME_STEP; cat $DISPATCH_RESUME_FROM/w", number=2)
    # then
    assert b"step=5\n55555555" in resumed.stdout
    assert b"passed over" in resumed.stdout and b"other bytes" in resumed.stdout


def test_a_program_may_promise_never_to_write_into_a_save_again(job: Any) -> None:
    program = (
        "os.mkdir(folder + '/s'); write('s/w', '1'); write('f', '1')\n"
        "print(publish(folder + '/s', 1).path, publish(folder + '/f', 2).path)\n"
    )

    job.python(PUBLISH + program, saves={**EXPLICIT, "overwritten": False})

    assert [publication.path for publication in job.publications()] == [f"exec/{job.attempt()}/{n}" for n in "sf"]


@pytest.mark.parametrize(
    ("saves", "say"),
    [
        ({"kind": "marker"}, "write('s/.complete', '5')\n"),
        ({**EXPLICIT, "overwritten": False}, "publish(folder + '/s', 5)\n"),
    ],
    ids=["marker inside", "explicit with the promise"],
)
def test_a_save_with_a_hard_link_to_a_file_that_is_written_on_is_resumed_from_its_copy(
    job: Any, saves: dict[str, Any], say: str
) -> None:
    program = PUBLISH + (
        "os.mkdir(folder + '/s'); write('live', '1' * 80); os.link(folder + '/live', folder + '/s/w')\n"
        + say
        + WAIT_FOR_ONE
        + "then = os.stat(folder + '/live').st_mtime_ns\n"
        + "write('live', '2' * 40, 'r+'); os.utime(folder + '/live', ns=(then, then)); os.kill(os.getpid(), 9)\n"
    )
    (job.root / "pub").mkdir(parents=True)
    job.python(program, saves=saves)

    resumed = job.run("sh", "-c", "cat $DISPATCH_RESUME_FROM/w", number=2, saves=saves)

    assert job.steps() == [5]
    assert b"1" * 80 in resumed.stdout


@pytest.mark.parametrize(("exit_code", "told"), [(0, 195), (1, 1)])
def test_what_has_not_settled_when_a_notice_makes_the_program_exit_is_never_published(
    job: Any, end: Any, wait_until: Any, exit_code: int, told: int
) -> None:
    program = PUBLISH + (
        "import signal\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({exit_code}))\n"
        "write('half', 'x'); open('ready', 'w').close(); time.sleep(60)\n"
    )
    process = job.start(sys.executable, "-c", program, saves={"kind": "settle", "pattern": "half", "settle": "1h"})
    wait_until((job.folder / "ready").exists)
    process.send_signal(signal.SIGTERM)

    assert end(process).returncode == told
    assert job.steps() == []


def test_a_save_that_is_written_again_under_its_step_is_published_again(job: Any) -> None:
    program = PUBLISH + (
        "os.mkdir(folder + '/s')\n"
        "saves = os.environ['DISPATCH_ROOT'] + '/meta/' + os.environ['DISPATCH_ATTEMPT'] + '/saves'\n"
        "for count, text in ((1, 'failed'), (2, 'good')):\n"
        "    if count == 2: os.unlink(folder + '/s/.complete')\n"
        "    write('s/w', text); write('new', '5'); os.rename(folder + '/new', folder + '/s/.complete')\n"
        "    while not os.path.exists(saves) or len(os.listdir(saves)) < count: time.sleep(0.01)\n"
    )
    job.python(program)

    resumed = job.run("sh", "-c", "cat $DISPATCH_RESUME_FROM/w", number=2)

    assert job.steps() == [5]
    assert b"good" in resumed.stdout


def test_saves_that_look_alike_are_told_apart_by_where_they_were_written(job: Any) -> None:
    program = PUBLISH + (
        "for number in (1, 2, 3):\n"
        "    name = f's-{number}'; os.mkdir(folder + '/' + name)\n"
        "    write(name + '/m', str(number)); os.utime(f'{folder}/{name}/m', (9, 9))\n"
    )

    job.python(program, saves={"kind": "settle", "pattern": "*/m", "settle": "1h"})

    assert [(job.root / publication.path).read_text() for publication in job.publications()] == ["1", "2", "3"]


def test_two_watches_of_one_execution_number_its_saves_together(job: Any) -> None:
    # given a save that the wrapper's watch has published, and others while the program's own watch looks too
    program = (
        PUBLISH
        + WAIT_FOR_ONE.join(["write('c-1', '1')\n", ""])
        + (
            "import subprocess\n"
            "pub = os.environ['DISPATCH_ROOT'] + '/pub'\n"
            "command = [sys.executable, '-m', 'prefect_dispatch.job', 'watch', '--interval', '0.05']\n"
            "watch = subprocess.Popen(command, stdout=subprocess.DEVNULL)\n"
            "for number in range(2, 7):\n"
            "    write(f'c-{number}', str(number))\n"
            "    while len(os.listdir(pub)) < number: time.sleep(0.01)\n"
            "watch.terminate(); watch.wait()\n"
            "write('c-7', '7')\n"
        )
    )
    (job.root / "pub").mkdir(parents=True)

    job.python(program, saves={"kind": "settle", "pattern": "c-*", "settle": "0.1s"})

    steps = job.steps()
    texts = [(job.root / publication.path).read_text() for publication in job.publications()]
    assert len(set(steps)) == len(steps)
    assert texts == sorted(texts) and set(texts) == set("1234567")


def test_what_a_message_calls_a_save_and_is_none_does_not_end_the_job(job: Any) -> None:
    program = PUBLISH + (
        "import json\n"
        "write('good', 'x'); os.mkfifo(folder + '/fifo'); os.symlink('good', folder + '/link')\n"
        "os.symlink('/etc', folder + '/out'); os.mkdir(folder + '/leaving'); os.mkdir(folder + '/odd')\n"
        "os.symlink('/etc/hostname', folder + '/leaving/l'); open(os.fsencode(folder) + b'/odd/\\xff', 'w').close()\n"
        "os.makedirs(folder + '/deep' + '/d' * 70); write('deep' + '/d' * 70 + '/f', 'x')\n"
        "for name in ('fifo', 'link', 'out/hostname', 'good/x', 'leaving', 'odd', 'deep', 'x' * 300, 'good'):\n"
        "    print('openjd_checkpoint_save: ' + json.dumps({'file': folder + '/' + name}))\n"
    )

    ended = job.python(program, saves={"kind": "messages"})

    assert ended.returncode == 0
    assert len(job.journal("refused")) == 8 and job.journal("fault") == []
    assert [publication.path.rpartition("/")[2] for publication in job.publications()] == ["good"]


@pytest.mark.parametrize(
    "change",
    ["write('s', '2' * 4, 'r+')", "write('new', '2' * 8); os.rename(folder + '/new', folder + '/s')"],
    ids=["written over", "replaced"],
)
def test_what_changes_after_its_message_is_refused_and_the_next_message_counts(job: Any, change: str) -> None:
    # given a clerk that is busy with a first save, of many files, when the second one's message comes
    program = PUBLISH + (
        "os.mkdir(folder + '/first')\n"
        "for number in range(1500): write(f'first/{number}', '1')\n"
        "def word(name): return 'openjd_checkpoint_save: {\"file\": \"' + folder + '/' + name + '\"}'\n"
        "write('s', '1' * 8); print(word('first') + '\\n' + word('s'), flush=True)\n"
        "numbers = os.environ['DISPATCH_ROOT'] + '/meta/' + os.environ['DISPATCH_ATTEMPT'] + '/numbers'\n"
        "while not os.path.exists(numbers): time.sleep(0.001)\n"
        f"{change}\n"
        + "while not os.listdir(os.environ['DISPATCH_ROOT'] + '/pub'): time.sleep(0.01)\n"
        + "print(word('s'), flush=True)\n"
    )
    (job.root / "pub").mkdir(parents=True)
    # when
    ended = job.python(program, saves={"kind": "messages"})
    # then
    assert ended.returncode == 0 and job.journal("fault") == []
    (refused,) = job.journal("refused")
    assert "changed since its message" in refused["reason"]
    assert b"changed since its message" in ended.stdout
    assert [publication.path.rpartition("/")[2] for publication in job.publications()] == ["first", "s"]


def test_what_settles_and_is_no_save_is_reported_once_and_left_out(job: Any) -> None:
    program = PUBLISH + (
        "os.mkfifo(folder + '/a-fifo'); os.symlink('c', folder + '/b-link')\n"
        "open(os.fsencode(folder) + b'/b\\xff', 'w').close()\n"
        "write('c', '1')\n" + WAIT_FOR_ONE + "os.utime(folder + '/a-fifo', (9, 9)); write('d', '1')\n"
        "while len(os.listdir(os.environ['DISPATCH_ROOT'] + '/pub')) < 2: time.sleep(0.01)\n"
    )
    (job.root / "pub").mkdir(parents=True)

    ended = job.python(program, saves={"kind": "settle", "pattern": "*", "settle": "0.1s"})

    assert ended.returncode == 0
    assert [publication.path.rpartition("/")[2] for publication in job.publications()] == ["c", "d"]
    refused = job.journal("refused")
    assert sorted(entry["line"] for entry in refused) == ["save a-fifo", "save b-link", "save b\\udcff"]
    assert job.journal("fault") == []


def test_a_marked_save_that_is_none_still_ends_the_job(job: Any) -> None:
    program = PUBLISH + (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "os.mkfifo(folder + '/s'); write('s.complete', '5'); time.sleep(60)\n"
    )

    ended = job.python(program)

    assert ended.returncode == 194 and b"neither a regular file nor a folder" in ended.stdout
