"""The tests' own cluster: shared by whoever needs it, and gone when nobody does, however he went."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_cluster.cluster import Cluster, shared_cluster, why_not
from support.full_form import FULL
from support.waiting import until

USER = """
import sys, time
from pathlib import Path
from slurm_cluster.cluster import shared_cluster
with shared_cluster(Path(sys.argv[1])) as cluster:
    print(cluster.folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")
def test_a_cluster_is_shared_and_gone_once_its_users_were_killed(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    # given two processes that need a cluster
    run = tmp_path / "run"
    run.mkdir()
    tests = str(Path(__file__).resolve().parents[1])
    users = [
        subprocess.Popen(
            [sys.executable, "-c", USER, run],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": tests},
        )
        for _ in range(2)
    ]
    try:
        folders = [Path(user.stdout.readline().strip()) for user in users]
        # then it is the same one, and it works
        assert folders[0] == folders[1]
        keeper = (run / "slurm.folder").read_text().split()[1]
        assert "n[1-2]" in Cluster(folders[0]).run("sinfo", "-h", "-p", "normal", "-o", "%N")
        # when the first is killed, the other one keeps it
        users[0].send_signal(signal.SIGKILL)
        users[0].wait()
        assert Cluster(folders[0]).run("sinfo", "-h", "-p", "normal", "-o", "%N")
        # when both are, nothing is left
        users[1].send_signal(signal.SIGKILL)
        users[1].wait()
        until(lambda: not folders[0].exists(), "its folder is gone")
        spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert f"ds{keeper}-" not in spaces
    finally:
        for user in users:
            user.kill()
            user.wait()
            user.stdout.close()


def test_a_cluster_that_did_not_start_is_joined_by_nobody(tmp_path):
    # given one whose keeper tells why it did not
    run, folder = tmp_path / "run", tmp_path / "cluster"
    run.mkdir()
    folder.mkdir()
    (folder / "in-use").touch()
    (folder / "told").write_text("there is no munge")
    (run / "slurm.folder").write_text(f"{folder} 1")
    # when / then
    with pytest.raises(AssertionError, match="there is no munge"), shared_cluster(run):
        raise RuntimeError("it was joined")
    # and nobody keeps it from being cleared away
    with open(folder / "in-use") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")
def test_the_overlap_after_slurms_word_can_be_measured(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    # when one row of the table is made
    program = Path(__file__).resolve().parents[2] / "benchmarks" / "slurm_overlap.py"
    made = subprocess.run(
        [sys.executable, program, "--json", "--case", "preempt-cancel"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    # then the old processes outlived Slurm's word, and nothing followed from what they wrote
    assert made.returncode == 0, made.stderr
    (measured,) = json.loads(made.stdout)["cases"].values()
    assert measured["lived"] > 1 and measured["submitted"] > measured["lived"] and measured["faults"] == []
