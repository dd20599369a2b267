"""The total deadline in real executions: notice, SIGTERM, SIGKILL, and nothing started within the margin."""

from __future__ import annotations

import json
import signal
import time
from datetime import timedelta
from typing import Any

import pytest

from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice

BUDGET = timedelta(hours=1)
USR1 = Notice("USR1", timedelta(seconds=30))
DEAF = """
import os, signal, subprocess, sys, time
def tell(number, frame):
    print("got", number, flush=True)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, tell)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("deadline", os.environ["DISPATCH_DEADLINE"], flush=True)
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
print("ready", flush=True)
time.sleep(600)
"""


def terms(left: float, margin: float) -> DeadlineTerms:
    """Those of a job of which so many seconds are left."""
    opened_at = time.time() - BUDGET.total_seconds() + left
    return DeadlineTerms(BUDGET, timedelta(seconds=margin), 0.0, opened_at)


def end_of(deadline: DeadlineTerms) -> float:
    assert deadline.opened_at is not None
    return deadline.opened_at + deadline.budget.total_seconds()


def test_a_program_that_hears_nothing_is_noticed_terminated_and_killed_in_time(job: Any) -> None:
    # given 12 seconds, and a program with a child of its own session that ignores what it is told
    deadline = terms(12, 6.5)
    # when
    ended = job.python(DEAF, notice=USR1, deadline=deadline)
    over = time.time()
    # then it got the notice, SIGTERM and SIGKILL, in that order, and nothing is left
    shown = ended.stdout.decode()
    assert ended.returncode == 193
    ends_at = end_of(deadline)
    assert f"deadline {int(ends_at)}\n" in shown
    places = [
        shown.index(each) for each in (f"got {signal.SIGUSR1:d}", f"got {signal.SIGTERM:d}", "killing", "exit 193")
    ]
    assert places == sorted(places)
    assert ends_at - 0.1 < over < ends_at + 10
    note = job.exit_note()
    assert (note.reason, note.signal, note.own_exit_code) == (ExitReason.DEADLINE, signal.SIGKILL, 193)
    (entry,) = job.journal("notice")
    assert entry["cause"] == "the total deadline is near" and entry["period_seconds"] == pytest.approx(6.5, abs=1)


def test_what_was_saved_on_the_notice_is_published_and_nothing_is_started_any_more(job: Any) -> None:
    # given a program that saves when the deadline is near
    deadline = terms(62, 60)
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
    job.python("pass", deadline=first)
    # when another one says that the job was opened later
    ended = job.python("import os; print('at', os.environ['DISPATCH_DEADLINE'])", number=2, deadline=terms(3600, 60))
    # then
    assert f"at {int(end_of(first))}\n".encode() in ended.stdout
    # and one with another budget is refused
    other = DeadlineTerms(timedelta(hours=2), timedelta(minutes=1))
    refused = job.python("pass", number=3, deadline=other)
    assert refused.returncode == 65 and b"'3600s' there and '7200s' here" in refused.stderr


@pytest.mark.parametrize("content", [b"", b'{"began_at":17'])
def test_a_file_that_is_empty_or_cut_is_refused_and_no_fresh_budget(job: Any, content: bytes) -> None:
    # given
    job.python("pass", deadline=terms(1800, 60))
    (place,) = (job.root / "deadline").iterdir()
    place.write_bytes(content)
    # when
    ended = job.python("print('ran')", number=2, deadline=terms(1800, 60))
    # then
    assert ended.returncode == 65
    assert place.name.encode() in ended.stderr and b"ran\n" not in ended.stdout
    assert place.read_bytes() == content


def test_without_one_nothing_is_written_down(job: Any) -> None:
    job.python("import os; assert os.environ['DISPATCH_DEADLINE'] == ''")
    assert list((job.root / "deadline").iterdir()) == []
    (claim,) = (job.root / "claims").iterdir()
    assert "at" not in json.loads(claim.read_bytes())
