"""What an ``up`` says of itself, and that no other process is ever taken for it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from prefect_dispatch.cli.down import run as down
from prefect_dispatch.cli.standing_up import Known, StandingUp, end, only_one, read_standing, running_up
from prefect_dispatch.errors import UsageError


@pytest.fixture
def child(monkeypatch, tmp_path):
    monkeypatch.setenv("DISPATCH_STATE", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_whose_pid_is_anothers_by_now_gets_no_signal(child):
    # given what was written of a process that had this pid before
    known = Known.of(child.pid)
    assert known is not None
    before = known.model_copy(update={"start_time": known.start_time - 1})
    another_boot = known.model_copy(update={"boot": "x"})
    # when it is to be ended
    assert not before.lives
    assert end([before, another_boot], 0.0) == []
    # then who has it now lives
    assert known.lives
    known.send(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM
    assert known.ended_within(0.0)
    assert Known.of(child.pid) is None


def test_what_does_not_end_is_killed():
    # given a process that does not listen
    text = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        known = Known.of(deaf.pid)
        assert known is not None
        # when, then
        assert end([known], 0.2) == [known]
        assert deaf.wait(10) == -signal.SIGKILL


def test_down_ends_what_a_killed_up_has_left_and_nothing_twice(child, capsys):
    # given an up that is gone, and a process of its own that is not
    known = Known.of(child.pid)
    assert known is not None
    gone = known.model_copy(update={"start_time": known.start_time - 1})
    StandingUp(up=gone, url="http://127.0.0.1:4200/api", own_server=True, children=(known,)).write()
    assert running_up() is None
    # when
    assert [down(None), down(None)] == [0, 0]
    # then
    assert child.wait(10) == -signal.SIGTERM
    assert read_standing() is None
    first, second = capsys.readouterr().out.splitlines()
    assert f"up, process {child.pid}, was killed; 1 processes of its own have been ended" in first
    assert second.startswith("no up runs for ")


def test_there_is_one_up_for_each_state_folder(child):
    with only_one(), pytest.raises(UsageError, match="up runs already"), only_one():
        pass
    with only_one():
        pass
