"""How a program is asked to save and exit: whom the signal reaches, the file, the wait while it has only just begun."""

from __future__ import annotations

import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.job.asking import START_UP_GRACE
from support.waiting import until

TELL = """
import os, signal, subprocess, sys, time
def tell(name):
    with open(name + ".new", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(name + ".new", name)
def save(step):
    folder = os.environ["DISPATCH_EXEC_DIR"]
    with open(f"{folder}/step-{step}", "w") as file:
        file.write(str(step))
    with open(f"{folder}/step-{step}.complete", "w") as file:
        file.write(str(step))
"""
TRAINS = (
    TELL
    + """
from prefect_dispatch.job import should_checkpoint
step = 0
while not should_checkpoint():
    step += 1
    if step == 2:
        tell("worker")
    time.sleep(0.01)
save(7)
"""
)
"""Looks between two steps, and has no handler."""
LISTENS = (
    TELL
    + """
def noticed(*_):
    time.sleep(2.5)  # a save takes longer than what children get after their leader's end
    save(7)
    sys.exit(0)
signal.signal(signal.SIGNAL, noticed)
tell("worker")
time.sleep(60)
"""
)
LAUNCHES = (
    TELL
    + """
worker = subprocess.Popen([sys.executable, "worker.py"], start_new_session=True)
pass  # EXTRA
tell("launcher")
sys.exit(worker.wait())
"""
)
"""Starts its worker in a session of its own, passes nothing on, and ends as it does."""


def notice(name: str, seconds: float = 20) -> Notice:
    return Notice(name, timedelta(seconds=seconds))


def write(job: Any, worker: str, launcher: str = LAUNCHES) -> tuple[str, str]:
    (job.folder / "worker.py").write_text(worker)
    (job.folder / "launcher.py").write_text(launcher)
    return sys.executable, "launcher.py"


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_case_24_a_program_behind_a_shell_has_its_whole_period(job: Any, end: Any, name: str) -> None:
    # given a shell that has no handler, and would be ended by the signal
    (job.folder / "worker.py").write_text(LISTENS.replace("SIGNAL", f"SIG{name}"))
    process = job.start("sh", "-c", f"{sys.executable} worker.py; true", notice=notice(name))
    job.pid("worker")
    # when the notice comes
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then the program behind it saves for as long as it takes, and its save is published
    assert ended.returncode == 195, ended.stdout
    assert job.steps() == [7]


def test_case_24_a_worker_in_a_session_of_its_own_gets_the_signal_that_its_launcher_does_not_pass_on(
    job: Any, end: Any
) -> None:
    # given a launcher like torchrun's, which SIGUSR1 would end
    process = job.start(*write(job, LISTENS.replace("SIGNAL", "SIGUSR1")), notice=notice("USR1"))
    job.pid("worker")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then
    assert ended.returncode == 195, ended.stdout
    assert job.steps() == [7]


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_case_24_a_worker_behind_a_launcher_that_swallows_the_signal_finds_the_file(
    job: Any, end: Any, name: str
) -> None:
    # given a launcher like mpirun's, which has a handler and passes nothing on
    deaf = LAUNCHES.replace("pass  # EXTRA", f"signal.signal(signal.SIG{name}, lambda *_: tell('heard'))")
    process = job.start(*write(job, TRAINS, deaf), notice=notice(name))
    job.pid("worker"), job.pid("launcher")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then
    assert ended.returncode == 195, ended.stdout
    assert job.steps() == [7]


def test_a_shell_finds_the_file(job: Any, end: Any) -> None:
    script = """
    trap : TERM
    touch worker
    until [ -e "$DISPATCH_NOTICE" ]; do sleep 0.1; done
    cp "$DISPATCH_NOTICE" told
    """
    process = job.start("sh", "-c", script)
    until((job.folder / "worker").exists)
    process.send_signal(signal.SIGTERM)
    assert end(process).returncode == 195
    assert '"cause": "SIGTERM received"' in (job.folder / "told").read_text()


def test_who_looks_between_two_steps_needs_no_handler(job: Any, end: Any) -> None:
    # given
    process = job.start(sys.executable, "-c", TRAINS)
    job.pid("worker")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then the signal did not end it
    assert ended.returncode == 195, ended.stdout
    assert job.steps() == [7]


def test_with_a_root_in_a_bucket_the_file_lies_in_the_workplace_and_goes_with_it(bucket_job: Any, end: Any) -> None:
    # given
    process = bucket_job.start(sys.executable, "-c", TRAINS)
    bucket_job.pid("worker")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then
    assert ended.returncode == 195, ended.stdout
    assert bucket_job.steps() == [7]
    assert b"is removed; all that was in it is published" in ended.stdout


def test_children_of_one_that_looks_can_be_ended_as_before(job: Any) -> None:
    # given a program that asks, and forks
    program = TELL + (
        "import multiprocessing\n"
        "from prefect_dispatch.job import should_checkpoint\n"
        "assert not should_checkpoint()\n"
        "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
        "child.start()\n"
        "child.terminate()\n"
        "child.join(20)\n"
        "sys.exit(0 if child.exitcode == -signal.SIGTERM else 1)\n"
    )
    # when / then
    assert job.python(program).returncode == 0


def test_a_handler_of_the_programs_own_stays(job: Any, end: Any) -> None:
    program = TELL + (
        "from prefect_dispatch.job import should_checkpoint\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "should_checkpoint()\ntell('worker')\ntime.sleep(60)\n"
    )
    process = job.start(sys.executable, "-c", program)
    job.pid("worker")
    process.send_signal(signal.SIGTERM)
    assert end(process).returncode == 9


def test_outside_of_an_execution_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect_dispatch.job import should_checkpoint

    monkeypatch.delenv("DISPATCH_NOTICE", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    assert should_checkpoint() is False
    assert signal.getsignal(signal.SIGTERM) is before


def test_case_27_a_notice_during_imports_waits_for_the_handler(job: Any, end: Any) -> None:
    # given a program that takes its time before it has a handler
    imports = TELL + "tell('imports')\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
    program = imports + LISTENS.replace("SIGNAL", "SIGTERM")
    process = job.start(sys.executable, "-c", program, notice=notice("TERM", 30))
    job.pid("imports")
    # when the notice comes meanwhile
    process.send_signal(signal.SIGTERM)
    until(lambda: job.journal("notice"))
    (job.folder / "go").touch()
    ended = end(process)
    # then it hears it once it can, and saves
    assert ended.returncode == 195, ended.stdout
    assert b"has no handler for SIGTERM yet" in ended.stdout
    assert job.steps() == [7]


def test_case_27_a_program_that_never_has_a_handler_is_ended_within_half_of_its_period(job: Any, end: Any) -> None:
    process = job.start(sys.executable, "-c", TELL + "tell('worker')\ntime.sleep(60)\n", notice=notice("TERM", 8))
    job.pid("worker")
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then by the signal, and not by the kill that would come at the period's end; no save exists
    assert ended.returncode == 143
    assert job.exit_note().reason is ExitReason.NOTICE
    assert b"at most 4s" in ended.stdout
    assert START_UP_GRACE > 8
    assert job.steps() == []


def test_without_the_file_there_is_still_the_signal(job: Any, end: Any) -> None:
    # given that something else is where the file should be
    process = job.start(sys.executable, "-c", LISTENS.replace("SIGNAL", "SIGTERM").replace("2.5", "0"))
    job.pid("worker")
    Path(job.root, "meta", job.attempt(), "notice").mkdir()
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then
    assert ended.returncode == 195
    assert b"the notice's file cannot be made" in ended.stdout
    assert job.steps() == [7]
