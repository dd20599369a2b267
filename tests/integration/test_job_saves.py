"""Saves of a real execution: markers, settling, messages, and the commands that a program or a person calls."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from prefect_dispatch.format import contract
from prefect_dispatch.format.journal import ExitReason

MESSAGES = {"kind": "messages"}
EXPLICIT = {"kind": "explicit"}
HELPER = f"{sys.executable} -m prefect_dispatch.job"
WAIT = "import os, sys, time\nfolder = os.environ['DISPATCH_EXEC_DIR']\n"


def test_a_save_whose_marker_is_missing_or_empty_is_never_published(job: Any) -> None:
    program = WAIT + (
        "open(folder + '/half', 'w').write('x')\n"
        "open(folder + '/begun', 'w').write('x'); open(folder + '/begun.complete', 'w').close()\n"
        "open(folder + '/whole', 'w').write('x'); open(folder + '/whole.complete', 'w').write(' 12 \\n')\n"
    )

    job.python(program)

    assert [(p.step, p.path.rpartition("/")[2]) for p in job.publications()] == [(12, "whole")]


def test_a_marker_that_names_no_step_ends_in_a_notice_and_194(job: Any) -> None:
    program = WAIT + (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "open(folder + '/s', 'w').write('x'); open(folder + '/s.complete', 'w').write('twelve'); time.sleep(60)\n"
    )

    ended = job.python(program)

    assert ended.returncode == 194
    note = job.exit_note()
    assert (note.reason, note.exit_code) == (ExitReason.SAVES, 0)
    assert len(job.journal("fault")) >= 2
    assert "'twelve'" in job.journal("notice")[0]["cause"]
    assert b"'twelve'" in ended.stdout.splitlines()[-1]


def test_one_look_that_fails_is_repeated_before_anyone_gives_up(job: Any) -> None:
    program = WAIT + (
        "open(folder + '/s', 'w').write('x'); open(folder + '/s.complete', 'w').write('twelve')\n"
        "journal = os.environ['DISPATCH_ROOT'] + '/meta/' + os.environ['DISPATCH_ATTEMPT'] + '/journal'\n"
        "while not os.path.exists(journal): time.sleep(0.01)\n"
        "open(folder + '/s.complete', 'w').write('12')\n"
    )

    ended = job.python(program)

    assert ended.returncode == 0
    assert len(job.journal("fault")) == 1 and job.steps() == [12]


def test_a_fixed_name_that_is_overwritten_is_kept_by_snapshots(job: Any, end: Any, wait_until: Any) -> None:
    program = WAIT + (
        "for step in (5, 6):\n"
        "    open(folder + '/last', 'w').write(f'weights {step}'); open(folder + '/last.new', 'w').write(str(step))\n"
        "    os.rename(folder + '/last.new', folder + '/last.complete')\n"
        "    while not os.path.exists(f'go-{step}'): time.sleep(0.01)\n"
    )
    process = job.start(sys.executable, "-c", program)
    for step in (5, 6):
        wait_until(lambda: job.prepared and step in job.steps())  # noqa: B023
        (job.folder / f"go-{step}").touch()
    end(process)

    first, second = job.publications()
    assert [first.path, second.path] == [f"meta/{job.attempt()}/snap/{number:020d}/last" for number in (1, 2)]
    assert [(job.root / path).read_text() for path in (first.path, second.path)] == ["weights 5", "weights 6"]


def test_a_file_that_is_torn_while_it_is_written_over_is_never_resumed_from(job: Any, wait_until: Any) -> None:
    # given a save of one file, and a kill in the middle of writing over it, which leaves it at its full size
    program = WAIT + (
        "open(folder + '/last', 'w').write('11111111'); open(folder + '/last.complete', 'w').write('5')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "open(folder + '/last', 'r+').write('2222'); os.kill(os.getpid(), 9)\n"
    )
    process = job.start(sys.executable, "-c", program)
    wait_until(lambda: job.prepared and job.steps() == [5])
    (job.folder / "go").touch()
    process.communicate(timeout=20)
    # when
    resumed = job.run("sh", "-c", "cat $DISPATCH_RESUME_FROM", number=2)
    # then
    assert b"11111111" in resumed.stdout
    assert b"2222" not in resumed.stdout


def test_a_folder_that_is_written_over_is_copied_from_its_second_save_on(job: Any, end: Any, wait_until: Any) -> None:
    program = WAIT + (
        "save = folder + '/save'; os.mkdir(save)\n"
        "for step in (5, 6):\n"
        "    if step == 6: os.unlink(save + '/.complete')\n"
        "    open(save + '/w', 'w').write(f'weights {step}'); open(folder + '/new', 'w').write(str(step))\n"
        "    os.rename(folder + '/new', save + '/.complete')\n"
        "    while not os.path.exists(f'go-{step}'): time.sleep(0.01)\n"
    )
    process = job.start(sys.executable, "-c", program)
    for step in (5, 6):
        wait_until(lambda: job.prepared and step in job.steps())  # noqa: B023
        (job.folder / f"go-{step}").touch()
    end(process)

    first, second = job.publications()
    assert first.path == f"exec/{job.attempt()}/save"
    assert second.path == f"meta/{job.attempt()}/snap/{1:020d}/save"
    assert (job.root / second.path / "w").read_text() == "weights 6"


def test_saves_settle_and_are_numbered(job: Any, end: Any, wait_until: Any) -> None:
    program = WAIT + (
        "for name in ('a.pt', 'b.pt'):\n"
        "    open(folder + '/' + name, 'w').write('x')\n"
        "    while not os.path.exists(f'saw-{name}'): time.sleep(0.01)\n"
        "open(folder + '/other', 'w').write('x')\n"
    )
    process = job.start(sys.executable, "-c", program, saves={"kind": "settle", "pattern": "*.pt", "settle": "0.2s"})
    for step, name in ((1, "a.pt"), (2, "b.pt")):
        wait_until(lambda: job.prepared and step in job.steps())  # noqa: B023
        (job.folder / f"saw-{name}").touch()
    end(process)

    assert [(p.step, p.path.rpartition("/")[2]) for p in job.publications()] == [(1, "a.pt"), (2, "b.pt")]


@pytest.mark.parametrize(("exit_code", "steps"), [("0", [1]), ("1", [])])
def test_what_has_not_settled_at_the_end_counts_only_after_a_good_end(
    job: Any, exit_code: str, steps: list[int]
) -> None:
    program = WAIT + f"open(folder + '/a', 'w').write('x'); sys.exit({exit_code})"

    job.python(program, saves={"kind": "settle", "pattern": "*", "settle": "1h"})

    assert job.steps() == steps


def test_case_23_saves_by_message_are_copied_numbered_and_carry_their_state(job: Any) -> None:
    program = WAIT + (
        "import json\n"
        "path = folder + '/checkpoint'\n"
        "open(path, 'w').write('first')\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'file': path, 'state': 'one\\nline'}))\n"
        "while not os.listdir(os.environ['DISPATCH_ROOT'] + '/pub'): time.sleep(0.01)\n"
        "open(path, 'w').write('second')\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'file': path, 'state': 'two'}))\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'file': folder + '/missing'}))\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'file': '/etc/hostname'}))\n"
    )
    (job.root / "pub").mkdir(parents=True)

    ended = job.python(program, saves=MESSAGES)

    assert ended.returncode == 0
    assert [(p.step, (job.root / p.path).read_text()) for p in job.publications()] == [(1, "first"), (2, "second")]
    refused = job.journal("refused")
    assert len(refused) == 2
    assert "missing" in refused[0]["reason"] and "/etc/hostname" in refused[1]["reason"]

    resumed = job.run("sh", "-c", 'cat "$DISPATCH_RESUME_FROM"; echo " $DISPATCH_RESUME_STATE"', number=2)
    assert b"second two\n" in resumed.stdout


def test_a_save_by_message_may_be_its_state_alone(job: Any) -> None:
    job.python('print(\'openjd_checkpoint_save: {"state": "3,2,3"}\')', saves=MESSAGES)

    resumed = job.run(
        "sh", "-c", 'echo "$DISPATCH_RESUME_STEP $DISPATCH_RESUME_STATE"; cat "$DISPATCH_RESUME_FROM"', number=2
    )

    assert b"\n1 3,2,3\n3,2,3" in resumed.stdout
    assert job.command("check", str(job.root)).returncode == 0


def test_a_save_by_message_is_refused_where_saves_come_from_elsewhere(job: Any) -> None:
    ended = job.python('print(\'openjd_checkpoint_save: {"state": "x"}\')')

    assert ended.returncode == 0 and job.publications() == []
    assert "'marker'" in job.journal("refused")[0]["reason"]


def test_publish_prints_the_name_and_takes_what_lies_in_the_executions_folder(job: Any) -> None:
    script = (
        f"cd $DISPATCH_EXEC_DIR && mkdir 'a [x]' && echo w > 'a [x]/w' && {HELPER} publish 'a [x]' --step 7 --state s"
        f" && echo w > -dash && {HELPER} publish --step 8 -- -dash"
        f" && {HELPER} publish /etc/hostname --step 9; echo outside=$?"
        f"; {HELPER} publish nothing --step 9; echo nothing=$?; {HELPER} publish -- -dash; echo usage=$?"
    )

    ended = job.run("sh", "-c", script, saves=EXPLICIT)

    assert [(p.step, p.path.rpartition("/")[2]) for p in job.publications()] == [(7, "a [x]"), (8, "-dash")]
    assert job.publications()[0].name.encode() in ended.stdout
    assert b"outside=194\nnothing=194\nusage=2\n" in ended.stdout
    assert ended.stderr.count(b"\n") == 3


def test_publish_is_refused_where_saves_come_from_elsewhere_and_outside_of_an_execution(job: Any) -> None:
    ended = job.run("sh", "-c", f"{HELPER} publish x --step 7; echo code=$?")
    outside = job.command("publish", "x", "--step", "7")

    assert b"code=2\n" in ended.stdout and b"'marker'" in ended.stderr
    assert outside.returncode == 2 and "DISPATCH_LINEAGE is not set" in outside.stderr


def test_the_same_functions_are_a_python_api(job: Any) -> None:
    program = WAIT + (
        "from prefect_dispatch.job import latest, publish\n"
        "open(folder + '/s', 'w').write('x')\n"
        "print(publish(folder + '/s', 3, state='mine').step, latest().manifest.state)\n"
    )

    ended = job.python(program, saves=EXPLICIT)

    assert b"\n3 mine\n" in ended.stdout, ended.stderr


def test_latest_and_list_of_a_root(job: Any) -> None:
    nothing = job.command("latest", "--root", str(job.root))
    job.run("true")
    empty = job.command("latest", "--root", str(job.root))
    job.python(
        WAIT + "[open(f'{folder}/{s}{end}', 'w').write(str(s)) for s in (9, 10) for end in ('', '.complete')]", number=2
    )

    text = job.command("latest", "--root", str(job.root))
    document = json.loads(job.command("latest", "--json", DISPATCH_ROOT=str(job.root)).stdout)
    listed = job.command("list", "--root", str(job.root))
    as_json = json.loads(job.command("list", "--json", "--root", str(job.root)).stdout)

    assert (nothing.returncode, empty.returncode) == (69, 3)
    assert text.stdout == f"{job.root}/meta/{job.attempt(2)}/snap/{2:020d}/10\n"
    assert (document["step"], document["execution"], document["absolute"]) == (10, "g0n2r0", text.stdout.strip())
    assert [line.split("\t")[:2] for line in listed.stdout.splitlines()] == [["g0n2r0", "9"], ["g0n2r0", "10"]]
    assert [entry["step"] for entry in as_json] == [9, 10]


def test_env_prints_what_a_shell_can_read_back(job: Any) -> None:
    ended = job.run(
        "sh",
        "-c",
        f"{HELPER} env > env.sh; env -i sh -c '. ./env.sh; env' | grep DISPATCH | sort; env | grep ^DISPATCH | sort",
    )

    lines = [line for line in ended.stdout.splitlines() if line.startswith(b"DISPATCH")]
    count = len(contract.VARIABLES)
    assert len(lines) == 2 * count and lines[:count] == lines[count:]
    assert job.command("env").returncode == 2


def test_check_names_each_fault(job: Any) -> None:
    job.python(WAIT + "[open(f'{folder}/5{end}', 'w').write('5') for end in ('', '.complete')]")
    clean = job.command("check", str(job.root))
    (job.root / "pub" / "nonsense").touch()
    faulty = job.command("check", str(job.root))
    as_json = json.loads(job.command("check", "--json", str(job.root)).stdout)

    assert clean.returncode == 0
    assert faulty.returncode == 65 and "pub/nonsense" in faulty.stdout
    assert [entry["severity"] for entry in as_json].count("fault") == 1
    assert job.command("check", str(job.folder / "nowhere")).returncode == 69


def test_watch_as_a_command_publishes_once_or_says_why_there_is_nothing_to_watch(job: Any) -> None:
    script = WAIT + (
        "import subprocess\n"
        "[open(f'{folder}/5{end}', 'w').write('5') for end in ('', '.complete')]\n"
        "command = [sys.executable, '-m', 'prefect_dispatch.job', 'watch', '--once']\n"
        "print(subprocess.run(command, stdout=subprocess.PIPE).stdout.decode())\n"
    )
    marker = job.python(script, watch_interval=timedelta(hours=1))
    explicit = job.run("sh", "-c", f"{HELPER} watch; echo code=$?", number=2, saves=EXPLICIT)
    settle = job.python(
        script, number=3, saves={"kind": "settle", "settle": "0.1s", "pattern": "5"}, watch_interval=timedelta(hours=1)
    )

    assert job.publications()[0].name.encode() in marker.stdout
    assert b"code=2\n" in explicit.stdout and b"nothing to watch" in explicit.stderr
    assert b"-00000000000000000001-" in settle.stdout
    # The wrapper's own watch finds them published already.
    assert (marker.returncode, settle.returncode, job.steps()) == (0, 0, [5, 1])


def test_watch_stops_at_the_first_error(job: Any) -> None:
    script = WAIT + (
        "import subprocess\n"
        "open(folder + '/s', 'w').write('x'); open(folder + '/s.complete', 'w').write('twelve')\n"
        "command = [sys.executable, '-m', 'prefect_dispatch.job', 'watch', '--interval', '0.05']\n"
        "print('code', subprocess.run(command).returncode, flush=True)\n"
    )

    ended = job.python(script, watch_interval=timedelta(hours=1))

    assert b"code 194\n" in ended.stdout
    assert b"'twelve'" in ended.stderr


def test_a_store_that_fails_gives_the_program_its_notice_and_exits_194(job: Any) -> None:
    program = WAIT + (
        "import signal, shutil; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "root = os.environ['DISPATCH_ROOT']\n"
        "shutil.rmtree(root + '/pub', ignore_errors=True); open(root + '/pub', 'w').close()\n"
        "[open(f'{folder}/5{end}', 'w').write('5') for end in ('', '.complete')]\n"
        "time.sleep(60)\n"
    )

    ended = job.python(program)

    assert ended.returncode == 194
    assert b"dispatch: notice: SIGTERM to the program" in ended.stdout


@pytest.mark.parametrize(
    "arguments", [["publish"], ["latest", "--rot", "x"], ["nothing"], [], ["watch", "--interval", "soon"]]
)
def test_a_wrong_command_line_is_one_line_and_exits_2(job: Any, arguments: list[str]) -> None:
    ended = job.command(*arguments)

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and ended.stderr.startswith("dispatch-job: ")


def test_a_scan_past_its_timeout_exits_194(job: Any) -> None:
    document = job.document(scan_timeout=timedelta(seconds=0.3))
    wrapper = (
        "import sys, time\n"
        "from prefect_dispatch.job import watch\n"
        "watch.MarkerWatch.look = lambda *_: time.sleep(600)\n"
        "from prefect_dispatch.job.__main__ import main\n"
        f"sys.exit(main(['run', '--submission', {str(document)!r}, '--', 'sleep', '60']))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", wrapper], cwd=job.folder, env=job.environment(), capture_output=True, timeout=20
    )

    assert ended.returncode == 194, ended.stderr
    assert b"takes longer than 0.3s" in ended.stdout


@pytest.mark.parametrize("place", ["save/.complete", "save.complete"])
def test_a_marker_that_stays_empty_is_not_passed_over_in_silence(job: Any, place: str) -> None:
    ended = job.python(
        WAIT + "os.mkdir(folder + '/save'); open(folder + '/save/w', 'w').write('x')\n"
        f"open(folder + '/{place}', 'w').close()\n"
    )

    assert ended.returncode == 194
    assert b"is empty, so its save has no step" in ended.stdout
    assert job.publications() == []
