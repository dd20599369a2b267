"""The total deadline in real executions: notice, SIGTERM, SIGKILL, and nothing started within the margin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice
from support.waiting import until

Alive = Callable[[int], bool]
End = Callable[["subprocess.Popen[bytes]"], "subprocess.CompletedProcess[bytes]"]
BUDGET = timedelta(hours=1)
USR1 = Notice("USR1", timedelta(seconds=30))
DEAF = """
import os, signal, subprocess, sys, time
def tell(number, frame):
    print("got", number, flush=True)
    open("got-%d" % number, "w").close()
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, tell)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("child", "w") as file:
    print(child.pid, file=file)
print("deadline", os.environ["DISPATCH_DEADLINE"], flush=True)
with open("leader", "w") as file:
    print(os.getpid(), file=file)
while True:
    time.sleep(1)
"""
SAVES = """
import os, signal, sys, time
def save(number, frame):
    folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], "step-7")
    os.mkdir(folder)
    open(os.path.join(folder, "weights"), "w").close()
    with open(os.path.join(folder, ".complete"), "w") as file:
        file.write("7")
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
time.sleep(600)
"""
WAITS = """
import os, time
with open("leader", "w") as file:
    print(os.getpid(), file=file)
while not os.path.exists("gate"):
    time.sleep(0.01)
"""
PIPE = """
import os, time
folder = os.environ["DISPATCH_EXEC_DIR"]
os.mkfifo(folder + "/a-pipe")
journal = os.path.join(os.environ["DISPATCH_ROOT"], "meta", os.environ["DISPATCH_ATTEMPT"], "journal")
while not os.path.isdir(journal) or not os.listdir(journal):
    time.sleep(0.01)
"""


def terms(left: float, margin: float) -> DeadlineTerms:
    """Those of a job of which so many seconds are left."""
    opened_at = time.time() - BUDGET.total_seconds() + left
    return DeadlineTerms(BUDGET, timedelta(seconds=margin), 0.0, opened_at)


def end_of(deadline: DeadlineTerms) -> float:
    assert deadline.opened_at is not None
    return deadline.opened_at + deadline.budget.total_seconds()


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def shown_in_order(ended: subprocess.CompletedProcess[bytes], *texts: str) -> bool:
    shown = ended.stdout.decode()
    places = [shown.index(each) for each in texts]
    return places == sorted(places)


def test_a_program_that_hears_nothing_is_noticed_terminated_and_killed_in_time(job: Any, alive: Alive) -> None:
    # given 18 seconds, and a program with a child in a session of its own that ignores what it is told
    deadline = terms(18, 8)
    # when
    ended = job.python(DEAF, notice=USR1, deadline=deadline)
    over = time.time()
    # then it got the notice, SIGTERM and SIGKILL, in that order, and nothing is left
    ends_at = end_of(deadline)
    assert ended.returncode == 193
    assert f"deadline {int(ends_at)}\n" in ended.stdout.decode()
    assert shown_in_order(
        ended,
        f"got {signal.SIGUSR1:d}",
        f"got {signal.SIGTERM:d}",
        "the total deadline has passed; killing",
        "exit 193",
    )
    assert not alive(job.pid("child")) and not alive(job.pid("leader"))
    assert ends_at - 0.1 < over < ends_at + 10
    note = job.exit_note()
    assert (note.reason, note.signal, note.own_exit_code) == (ExitReason.DEADLINE, signal.SIGKILL, 193)
    (entry,) = job.journal("notice")
    assert entry["cause"] == "the total deadline is near" and entry["period_seconds"] == pytest.approx(8, abs=1)


def test_a_notice_before_the_margin_lasts_no_longer_than_until_the_deadline(job: Any, end: End) -> None:
    # given a program that ignores what it is told, whose wrapper is told to end; the notice period is ten minutes
    deadline = terms(18, 8)
    process = job.start(sys.executable, "-c", DEAF, notice=Notice("USR1", timedelta(minutes=10)), deadline=deadline)
    job.pid("leader")
    # when
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then one notice was given, and the deadline ended it
    assert ended.returncode == 193 and time.time() < end_of(deadline) + 10
    got = f"got {signal.SIGUSR1:d}"
    assert shown_in_order(ended, got, f"got {signal.SIGTERM:d}", "the total deadline has passed; killing")
    assert ended.stdout.decode().count(got) == 1
    (entry,) = job.journal("notice")
    assert entry["cause"] == "SIGTERM received" and entry["period_seconds"] == 600
    assert job.exit_note().reason is ExitReason.DEADLINE


def test_who_takes_the_machine_away_waits_no_longer_for_a_program_that_was_asked(job: Any, end: End) -> None:
    # given a program that the deadline has asked to save, and that does not listen
    deadline, notice = terms(50, 40), Notice("USR1", timedelta(seconds=1))
    process = job.start(sys.executable, "-c", DEAF, notice=notice, deadline=deadline)
    until(lambda: (job.folder / f"got-{signal.SIGUSR1:d}").exists(), "the deadline's notice comes")
    # when its wrapper is told to end, too
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    # then it has the notice period and no more; what ended it is the deadline all the same
    assert ended.returncode == 193 and time.time() < end_of(deadline) - 10
    assert shown_in_order(ended, "the notice period is over after 1.0s; killing", "exit 193")
    assert job.exit_note().reason is ExitReason.DEADLINE and len(job.journal("notice")) == 1


def test_a_program_that_was_done_before_the_margin_has_done_its_work(job: Any, alive: Alive, end: End) -> None:
    # given a wrapper that stands still while its program exits 0, and until the margin has begun
    deadline = terms(40, 30)
    process = job.start(sys.executable, "-c", WAITS, deadline=deadline)
    leader = job.pid("leader")
    process.send_signal(signal.SIGSTOP)
    (job.folder / "gate").touch()
    until(lambda: not alive(leader), "the program exits")
    assert time.time() < end_of(deadline) - 30
    until(lambda: time.time() > end_of(deadline) - 29, "the margin begins")
    # when it goes on
    process.send_signal(signal.SIGCONT)
    # then
    assert end(process).returncode == 0
    assert job.exit_note().reason is ExitReason.PROGRAM and job.journal("notice") == []


def test_a_leader_that_is_done_before_the_margin_is_not_asked_while_its_children_are_waited_for(
    job: Any, alive: Alive, end: End
) -> None:
    # given a guardian that stands still, so that nobody takes note of the program's end before the margin
    deadline = terms(40, 30)
    process = job.start(sys.executable, "-c", WAITS, deadline=deadline)
    leader = job.pid("leader")
    until(lambda: time.time() > end_of(deadline) - 32, "the margin is near")
    guardian = parent_of(leader)
    os.kill(guardian, signal.SIGSTOP)
    (job.folder / "gate").touch()
    until(lambda: not alive(leader), "the program exits")
    until(lambda: time.time() > end_of(deadline) - 28.5, "the margin has begun")
    # when it goes on
    os.kill(guardian, signal.SIGCONT)
    # then
    assert end(process).returncode == 0 and job.journal("notice") == []


def test_every_word_that_the_wrapper_writes_is_by_the_deadlines_clock(job: Any) -> None:
    # given a host whose clock is five minutes behind, and something that matches the pattern and is no save
    known = time.time() + 300
    deadline = DeadlineTerms(BUDGET, timedelta(seconds=30), known)
    ended = job.python(PIPE, deadline=deadline, saves={"kind": "settle", "pattern": "*", "settle": "0.1s"})
    assert ended.returncode == 0
    # when / then
    entries = job.lineage_root.journal(job.attempt()).entries()
    assert {entry.kind for entry in entries} == {"refused", "exit"}
    assert all(entry.fields["at"] >= known for entry in entries)
    (claim,) = (job.root / "claims").iterdir()
    assert json.loads(claim.read_bytes())["at"] >= known


def test_what_was_saved_on_the_notice_is_published_and_nothing_is_started_any_more(job: Any) -> None:
    # given a program that saves when the deadline is near
    deadline = terms(40, 30)
    ended = job.python(SAVES, notice=USR1, deadline=deadline)
    assert ended.returncode == 193
    assert job.steps() == [7]
    # when it is submitted again
    again = job.python("print('ran')", number=2, deadline=deadline)
    # then
    assert again.returncode == 193
    assert b"ran" not in again.stdout and b"nothing is started" in again.stderr
    note = job.exit_note(2)
    assert (note.program_started, note.own_exit_code, note.reason) == (False, 193, ExitReason.REFUSED)


def test_a_later_submission_cannot_move_it(job: Any) -> None:
    # given
    first = terms(1800, 60)
    assert job.python("pass", deadline=first).returncode == 0
    # when another one says that the job was opened later
    ended = job.python("import os; print('at', os.environ['DISPATCH_DEADLINE'])", number=2, deadline=terms(3600, 60))
    # then
    assert ended.returncode == 0 and f"at {int(end_of(first))}\n".encode() in ended.stdout
    # and one with another budget is refused
    other = DeadlineTerms(timedelta(hours=2), timedelta(minutes=1))
    refused = job.python("pass", number=3, deadline=other)
    assert refused.returncode == 65 and b"'3600s' there and '7200s' here" in refused.stderr


@pytest.mark.parametrize("content", [b"", b'{"began_at":17'])
def test_a_file_that_is_empty_or_cut_is_refused_and_no_fresh_budget(job: Any, content: bytes) -> None:
    # given
    assert job.python("pass", deadline=terms(1800, 60)).returncode == 0
    (place,) = (job.root / "deadline").iterdir()
    place.write_bytes(content)
    # when
    ended = job.python("print('ran')", number=2, deadline=terms(1800, 60))
    # then
    assert ended.returncode == 65
    assert place.name.encode() in ended.stderr and b"ran\n" not in ended.stdout
    assert place.read_bytes() == content


def test_without_one_nothing_is_written_down(job: Any) -> None:
    assert job.python("import os; assert os.environ['DISPATCH_DEADLINE'] == ''").returncode == 0
    assert list((job.root / "deadline").iterdir()) == []
    (claim,) = (job.root / "claims").iterdir()
    assert "at" not in json.loads(claim.read_bytes())
