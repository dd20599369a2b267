"""What happens to a program's processes: notices, ends, losses. Nothing of them may be left, nothing may hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice, RestartSource

WRITE_PID = """
import os, signal, sys, time
def tell(name):
    with open(name + ".new", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(name + ".new", name)
"""
DEAF = WRITE_PID + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell('leader')\ntime.sleep(60)\n"
CHILDREN = (
    WRITE_PID
    + """
def go_on(name):
    # Another program, which knows nothing of the execution: only its parents tell whose it is.
    tell(name)
    os.execve("/bin/sleep", ["sleep", "60"], {})
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        go_on("orphan")
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    go_on("own-session")
while not (os.path.exists("orphan") and os.path.exists("own-session")):
    time.sleep(0.01)
tell("leader")
"""
)
PIDS = ("leader", "orphan", "own-session")


def python(program: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", program)


def notice(seconds: float, name: str = "TERM") -> Notice:
    return Notice(name, timedelta(seconds=seconds))


def test_a_program_that_ignores_the_notice_is_killed_when_its_period_is_over(job: Any, alive: Any, end: Any) -> None:
    process = job.start(*python(DEAF), notice=notice(0.3))
    leader = job.pid("leader")

    process.send_signal(signal.SIGTERM)
    ended = end(process)

    assert ended.returncode == 137
    assert not alive(leader)
    note = job.exit_note()
    assert (note.reason, note.signal) == (ExitReason.KILLED, signal.SIGKILL)
    (entry,) = job.journal("notice")
    assert entry == {"signal": "TERM", "cause": "SIGTERM received", "period_seconds": 0.3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_the_notice_reaches_the_program_as_the_signal_that_it_asked_for(job: Any, end: Any, number: int) -> None:
    program = WRITE_PID + ("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\ntell('leader')\ntime.sleep(60)\n")
    process = job.start(*python(program), notice=notice(10, "USR1"))
    job.pid("leader")

    process.send_signal(number)
    ended = end(process)

    assert ended.returncode == 7
    assert b"dispatch: notice: SIGUSR1 to the program" in ended.stdout
    assert job.exit_note().reason is ExitReason.NOTICE


def test_a_program_that_saves_on_the_notice_and_exits_0_is_not_done(job: Any, end: Any) -> None:
    # given
    program = WRITE_PID + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntell('leader')\ntime.sleep(60)\n"
    process = job.start(*python(program))
    job.pid("leader")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then
    assert ended.returncode == 195
    note = job.exit_note()
    assert (note.exit_code, note.own_exit_code, note.reason) == (0, 195, ExitReason.NOTICE)
    assert b"it was asked to end, so that it may not be done" in ended.stdout


def test_a_program_that_the_same_signal_reached_first_is_not_done(job: Any, end: Any, wait_until: Any) -> None:
    # given a program that ends by a signal that its wrapper has not had yet, as all of a machine's processes get it
    program = WRITE_PID + (
        "signal.signal(signal.SIGTERM, lambda *_: (signal.signal(signal.SIGTERM, signal.SIG_IGN), sys.exit(0)))\n"
        "tell('leader')\ntime.sleep(60)\n"
    )
    process = job.start(*python(program))
    leader = job.pid("leader")
    # when the wrapper gets it while it sees to that end
    process.send_signal(signal.SIGSTOP)
    os.kill(leader, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    # then
    assert end(process).returncode == 195
    assert job.exit_note().reason is ExitReason.NOTICE


def test_a_signal_that_was_ignored_from_the_start_is_no_notice(job: Any, end: Any) -> None:
    program = WRITE_PID + "tell('leader')\ntime.sleep(60)\n"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = job.start(*python(program), notice=notice(10, "USR1"))
    finally:
        signal.signal(signal.SIGHUP, before)
    job.pid("leader")

    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    end(process)

    (entry,) = job.journal("notice")
    assert entry["cause"] == "SIGTERM received"


def test_case_24_the_notice_reaches_a_program_behind_a_shell(job: Any, end: Any) -> None:
    program = WRITE_PID + (
        "signal.signal(signal.SIGTERM, lambda *_: (tell('noticed'), sys.exit(0)))\ntell('leader')\ntime.sleep(60)\n"
    )
    (job.folder / "train.py").write_text(program)
    process = job.start("sh", "-c", f"{sys.executable} train.py; true")
    job.pid("leader")

    process.send_signal(signal.SIGTERM)
    end(process)

    assert (job.folder / "noticed").exists()


def test_case_26_a_second_notice_neither_kills_nor_shortens_the_period(job: Any, end: Any, wait_until: Any) -> None:
    program = WRITE_PID + (
        "count = 0\n"
        "def save(*_):\n"
        "    global count; count += 1; tell(f'notice-{count}')\n"
        "signal.signal(signal.SIGTERM, save)\ntell('leader')\n"
        "while not os.path.exists('finish'):\n    time.sleep(0.01)\n"
        "sys.exit(10 + count)\n"
    )
    process = job.start(*python(program))
    job.pid("leader")

    process.send_signal(signal.SIGTERM)
    job.pid("notice-1")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        process.send_signal(number)
    (job.folder / "finish").touch()
    ended = end(process)

    assert ended.returncode == 11
    assert len(job.journal("notice")) == 1


def test_case_27_a_notice_before_the_program_is_there_starts_nothing(job: Any) -> None:
    document = job.document()
    wrapper = (
        "import os, signal, sys\n"
        "from prefect_dispatch.stores.lineage_root import LineageRoot\n"
        "LineageRoot.pin = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from prefect_dispatch.job.__main__ import main\n"
        f"sys.exit(main(['run', '--submission', {str(document)!r}, '--', 'touch', 'ran']))\n"
    )

    ended = subprocess.run(python(wrapper), cwd=job.folder, env=job.environment(), capture_output=True, timeout=20)

    assert ended.returncode == 143, ended.stderr
    assert not (job.folder / "ran").exists()
    note = job.exit_note()
    assert (note.program_started, note.own_exit_code, note.reason) == (False, 143, ExitReason.NOTICE)


def test_a_save_made_after_the_notice_is_published(job: Any, end: Any) -> None:
    program = WRITE_PID + (
        "def save(*_):\n"
        "    folder = os.environ['DISPATCH_EXEC_DIR']\n"
        "    open(folder + '/last', 'w').write('x'); open(folder + '/last.complete', 'w').write('9'); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, save)\ntell('leader')\ntime.sleep(60)\n"
    )
    process = job.start(*python(program), watch_interval=timedelta(hours=1))
    job.pid("leader")

    process.send_signal(signal.SIGTERM)
    ended = end(process)

    assert ended.returncode == 3
    assert job.steps() == [9]


@pytest.mark.parametrize("code", [0, 5])
def test_case_25_nothing_is_left_of_a_leader_that_ended_while_its_children_go_on(
    job: Any, alive: Any, code: int
) -> None:
    ended = job.run(*python(CHILDREN + f"sys.exit({code})"))

    assert ended.returncode == code
    assert not any(alive(job.pid(name)) for name in PIDS)


def test_case_25_nothing_is_left_when_the_notice_period_is_over(job: Any, alive: Any, end: Any) -> None:
    process = job.start(
        *python(CHILDREN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"), notice=notice(0.2)
    )
    pids = [job.pid(name) for name in PIDS]

    process.send_signal(signal.SIGTERM)
    ended = end(process)

    assert ended.returncode == 137
    assert not any(alive(pid) for pid in pids)


def test_nothing_is_left_of_the_program_when_the_wrapper_is_killed(
    job: Any, alive: Any, end: Any, wait_until: Any
) -> None:
    process = job.start(*python(CHILDREN + "time.sleep(60)"))
    pids = [job.pid(name) for name in PIDS]

    process.kill()

    wait_until(lambda: not any(alive(pid) for pid in pids))
    end(process)


def test_nothing_is_left_when_the_guardian_is_killed_and_the_run_says_so(job: Any, alive: Any, end: Any) -> None:
    process = job.start(*python(CHILDREN + "time.sleep(60)"))
    pids = [job.pid(name) for name in PIDS]
    guardian = parent_of(pids[0])

    os.kill(guardian, signal.SIGKILL)
    ended = end(process)

    assert ended.returncode == 1
    assert not any(alive(pid) for pid in pids)
    assert job.exit_note().reason is ExitReason.GUARDIAN_LOST


def test_a_guardian_that_is_lost_before_it_told_of_the_start_leaves_nothing_and_the_run_says_so(
    job: Any, alive: Any
) -> None:
    """The program may have begun by then: its run is lost, not impossible."""
    program = "sleep 60 & echo $! > child; exec sleep 60"

    ended = job.run("sh", "-c", program, variables={"DISPATCH_FAILPOINT": "tell-started"})

    assert ended.returncode == 1
    assert b"its guardian was killed, so its own exit is not known" in ended.stdout
    assert job.exit_note().reason is ExitReason.GUARDIAN_LOST
    child = job.folder / "child"
    assert not child.exists() or not alive(int(child.read_text() or 0))


HOPPER = (
    WRITE_PID
    + """
if os.fork():
    while not os.path.exists("hopping"):
        time.sleep(0.01)
    os._exit(0)
os.setsid()
give_up = time.monotonic() + 15
while time.monotonic() < give_up:
    if os.fork():
        os._exit(0)
    own_session()
    tell("hopping")
os._exit(0)
"""
)


@pytest.mark.parametrize("own_session", ["pass", "os.setsid()"])
def test_a_process_that_keeps_forking_and_ending_is_never_where_one_looks_and_is_ended_all_the_same(
    job: Any, own_session: str
) -> None:
    ended = job.run(*python(HOPPER.replace("own_session()", own_session)))

    assert ended.returncode == 0
    hopping = job.folder / "hopping"
    then = hopping.stat().st_mtime_ns, hopping.stat().st_ino
    time.sleep(0.3)  # Hundreds of its lives; there is nothing to wait for, since nothing may come.
    assert (hopping.stat().st_mtime_ns, hopping.stat().st_ino) == then


def test_a_look_at_the_processes_that_shows_none_is_not_believed_while_there_are_children() -> None:
    program = (
        "import os, time\n"
        "from prefect_dispatch.job import processes\n"
        "looks = []\n"
        "processes._parents = lambda: iter(())\n"
        "processes._children = lambda spared: looks.append(spared) or set()\n"
        "if os.fork() == 0:\n"
        "    time.sleep(60)\n"
        "killed, left = processes.kill_all('nobody-0', {1}, 0.2, lambda _: processes.reap())\n"
        "assert (killed, left) == (set(), [0]), (killed, left)\n"
        "os.kill(0, 9)\n"
    )

    ended = subprocess.run(python(program), capture_output=True, timeout=20, start_new_session=True)

    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, b"")


def test_a_stopped_guardian_is_killed_and_the_program_with_it(job: Any, alive: Any, end: Any) -> None:
    process = job.start(*python(CHILDREN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"))
    pids = [job.pid(name) for name in PIDS]
    guardian = parent_of(pids[0])
    os.kill(guardian, signal.SIGSTOP)

    os.kill(pids[0], signal.SIGKILL)
    ended = end(process)

    assert not any(alive(pid) for pid in [*pids, guardian])
    assert ended.returncode == 1
    assert b"the guardian does not answer" in ended.stdout
    assert job.exit_note().reason is ExitReason.GUARDIAN_LOST


def test_a_stopped_guardian_hears_of_its_wrappers_death(job: Any, alive: Any, end: Any, wait_until: Any) -> None:
    process = job.start(*python(CHILDREN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"))
    pids = [job.pid(name) for name in PIDS]
    guardian = parent_of(pids[0])
    os.kill(guardian, signal.SIGSTOP)

    process.kill()

    assert end(process).returncode == -signal.SIGKILL
    wait_until(lambda: not any(alive(pid) for pid in [*pids, guardian]))


def test_a_guardian_that_is_stopped_when_the_notice_period_is_over_saves_nobody(job: Any, alive: Any, end: Any) -> None:
    process = job.start(
        *python(CHILDREN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"), notice=notice(0)
    )
    pids = [job.pid(name) for name in PIDS]
    os.kill(parent_of(pids[0]), signal.SIGSTOP)

    process.send_signal(signal.SIGTERM)
    ended = end(process)

    assert not any(alive(pid) for pid in pids)
    assert ended.returncode == 137
    assert job.exit_note().reason is ExitReason.KILLED


def test_who_was_there_before_the_wrapper_is_none_of_the_programs(job: Any, alive: Any, end: Any) -> None:
    """A batch script that leaves a service running and becomes the wrapper by exec."""
    command = (
        "sleep 60 & echo $! > service; exec "
        f"{sys.executable} -m prefect_dispatch.job run --submission {job.document()}"
        f" -- sh -c 'echo $$ > leader; sleep 60'"
    )
    process = subprocess.Popen(["sh", "-c", command], cwd=job.folder, env=job.environment(), stdout=subprocess.PIPE)
    job.started.append(process)
    leader, service = job.pid("leader"), job.pid("service")
    try:
        os.kill(parent_of(leader), signal.SIGKILL)

        assert process.wait(20) == 1
        assert alive(service) and not alive(leader)
    finally:
        os.kill(service, signal.SIGKILL)


def test_a_process_that_left_the_tree_is_found_by_the_attempt_in_its_environment(
    job: Any, alive: Any, end: Any
) -> None:
    """As Slurm's daemon starts the tasks of ``srun``: not below the wrapper, with the program's environment."""
    process = job.start(*python(WRITE_PID + "tell('leader')\nwhile not os.path.exists('finish'): time.sleep(0.01)"))
    job.pid("leader")
    outside = subprocess.Popen(["sleep", "60"], env={**os.environ, "DISPATCH_ATTEMPT": job.attempt()})
    bystander = subprocess.Popen(["sleep", "60"], env={**os.environ, "DISPATCH_ATTEMPT": job.attempt(2)})
    try:
        (job.folder / "finish").touch()
        ended = end(process)

        assert ended.returncode == 0
        assert outside.wait(20) == -signal.SIGKILL
        assert bystander.poll() is None
    finally:
        for other in (outside, bystander):
            other.kill()
            other.wait()


def test_case_20_a_stranger_that_holds_the_output_open_does_not_hold_up_the_run(job: Any, end: Any) -> None:
    """Nothing that the guardian can know of: the descriptor was taken through ``/proc``."""
    process = job.start(*python(WRITE_PID + "tell('leader')\nwhile not os.path.exists('finish'): time.sleep(0.01)"))
    held = os.open(f"/proc/{job.pid('leader')}/fd/1", os.O_WRONLY)
    try:
        (job.folder / "finish").touch()
        ended = end(process)
    finally:
        os.close(held)

    assert ended.returncode == 0
    assert b"a stranger holds it open" in ended.stdout


def test_the_last_lines_of_a_filter_behind_the_leader_are_not_cut_off(job: Any) -> None:
    ended = job.run("sh", "-c", "(sleep 0.2; echo late) & echo early")

    assert b"early\nlate\n" in ended.stdout


def test_a_stopped_program_is_killed_too(job: Any, alive: Any, end: Any) -> None:
    process = job.start(*python(DEAF), notice=notice(0.1))
    leader = job.pid("leader")
    os.kill(leader, signal.SIGSTOP)

    process.send_signal(signal.SIGTERM)

    assert end(process).returncode == 137
    assert not alive(leader)


def test_the_program_leads_a_group_of_its_own_and_has_no_signal_ignored_or_blocked(job: Any) -> None:
    ended = job.run("sh", "-c", "exec grep -E 'SigIgn|SigBlk|NSpgid|NSpid' /proc/self/status")

    shown = dict(line.split(":\t") for line in ended.stdout.decode().splitlines() if ":\t" in line)
    assert shown["SigBlk"] == shown["SigIgn"] == "0" * 16
    assert shown["NSpgid"] == shown["NSpid"]


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def test_a_silent_job_costs_next_to_nothing(job: Any, end: Any) -> None:
    process = job.start("sleep", "60", watch_interval=timedelta(seconds=5))
    time.sleep(1.0)  # Past the start, which is what may cost something.
    before = cpu_seconds(process.pid)
    time.sleep(2.0)

    assert cpu_seconds(process.pid) - before <= 0.02 * 2.0
    process.send_signal(signal.SIGTERM)
    assert end(process).returncode == 143


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


COUNTED = WRITE_PID + (
    "count = []\n"
    "signal.signal(signal.SIGTERM, lambda *_: count.append(1))\n"
    "tell('leader')\n"
    "give_up = time.monotonic() + 30\n"
    "while not count and time.monotonic() < give_up: time.sleep(0.01)\n"
    "time.sleep(1.5)\n"
    "print('signals', len(count), flush=True)\n"
)


@pytest.mark.parametrize("order", ["wrapper first", "wrapper last", "wrapper alone"])
def test_a_signal_to_all_processes_of_a_job_reaches_the_program_once(job: Any, end: Any, order: str) -> None:
    # given a job of a scheduler that may signal all of a job's processes, as Slurm does
    process = job.start(*python(COUNTED), restart_source=RestartSource.SLURM)
    leader = job.pid("leader")
    guardian = int(Path(f"/proc/{leader}/status").read_text().partition("PPid:")[2].split()[0])
    # when it does
    all_of_it = {
        "wrapper first": (process.pid, guardian, leader),
        "wrapper last": (leader, guardian, process.pid),
        "wrapper alone": (process.pid,),
    }
    for pid in all_of_it[order]:
        os.kill(pid, signal.SIGTERM)
    # then the program has it once, and the run counts as asked to end
    ended = end(process)
    assert b"signals 1" in ended.stdout
    assert ended.returncode == 195
