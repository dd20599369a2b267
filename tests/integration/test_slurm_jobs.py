"""Whole jobs on a real Slurm: what ends them, and how they go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.observation import ObjectState
from slurm_cluster.bench import SlurmBench
from slurm_cluster.cluster import Cluster
from support.full_form import FULL

long = pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")


@pytest.fixture
def bench(slurm: Cluster, tmp_path: Path) -> SlurmBench:
    return SlurmBench(slurm, tmp_path)


def test_slurm_runs_a_preempted_job_again_and_nobody_submits_it_a_second_time(bench):
    # given a job that runs and has saved
    bench.open()
    job = bench.running(1, 0, 1)
    # when it is preempted, in a partition with PreemptMode=REQUEUE
    bench.preempt(job)
    # then Slurm runs it again, from its last save, as the same job
    assert bench.running(1, 1, 3) == job
    finished = bench.finish()
    assert finished.outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "preempted"), (1, 1, "completed")]
    assert len(bench.jobs()) == 1


def test_a_job_that_slurm_cancels_for_another_is_resubmitted_after_a_bound(bench):
    # given a job in a partition with PreemptMode=CANCEL, which may be requeued
    bench.open(scheduler={"partition": "lowc"})
    job = bench.running(1, 0, 1)
    # when it is preempted
    bench.preempt(job)
    # then no requeue comes, and another job goes on from its save
    assert bench.running(2, 0, 3) != job
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "preempted"), (2, 0, "completed")]
    assert len(bench.jobs()) == 2


def test_the_switch_is_off_before_the_last_budgeted_restart(bench):
    # given a job that may be preempted twice
    bench.open(recovery={"preempted": {"action": "requeue", "budget": 2}})
    job = bench.running(1, 0, 1)
    assert "Requeue=1" in bench.cluster.run("scontrol", "show", "job", job)
    # when it was preempted once
    bench.preempt(job)
    assert bench.running(1, 1, 3) == job
    # then Slurm may not run it again by itself
    bench.advance_until(lambda state: bench.facts("restarts_forbidden"))
    assert "Requeue=0" in bench.cluster.run("scontrol", "show", "job", job)
    # and the second time it is resubmitted
    bench.preempt(job)
    bench.running(2, 0, 5)
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "preempted"), (1, 1, "preempted"), (2, 0, "completed")]


def test_a_failed_job_is_requeued_by_us_with_the_restart_that_is_expected(bench):
    # given a job that fails the first time, and a rule that requeues it
    bench.open(
        "import os, sys; sys.exit(3 if os.environ['DISPATCH_ATTEMPT'].endswith('-0') else 0)",
        recovery={"failed": {"action": "requeue", "budget": 2}},
    )
    # when it is carried to its end
    finished = bench.end()
    # then the same job ran twice
    assert finished.outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "failed"), (1, 1, "completed")]
    assert [(fact.n, fact.restart) for fact in bench.facts("requeueing")] == [(1, 1)]
    assert len(bench.jobs()) == 1


def test_a_job_that_is_cancelled_by_somebody_else_is_stopped_and_it_is_told_by_whom(bench):
    # given
    bench.open()
    job = bench.running(1, 0, 1)
    # when somebody cancels it at the cluster
    bench.cluster.run("scancel", job)
    # then it is not run again
    finished = bench.end()
    assert finished.outcome is Outcome.STOPPED
    (ended,) = bench.facts("ended")
    assert ended.cause.value == "stopped" and "CANCELLED by 0 (root, or Slurm itself)" in ended.detail
    assert len(bench.jobs()) == 1


def test_a_stop_of_ours_ends_the_job_and_is_told_as_ours(bench, capsys):
    # given
    bench.open()
    bench.running(1, 0, 1)
    # when
    assert main(["stop", "digits", "--store", bench.root]) == 0, capsys.readouterr()
    # then
    assert bench.end().outcome is Outcome.STOPPED
    (ended,) = bench.facts("ended")
    assert ended.cause.value == "stopped" and "after we asked for its end" in ended.detail


def test_a_suspended_job_saves_and_waits_and_then_goes_on_as_another_job(bench, capsys):
    # given
    bench.open()
    bench.running(1, 0, 1)
    # when it is suspended
    assert main(["suspend", "digits", "--store", bench.root]) == 0, capsys.readouterr()
    state = bench.advance_until(lambda state: state.hold is not None)
    # then it saved and is held
    assert bench.ends() == [(1, 0, "suspended")], capsys.readouterr()
    # and once a person says so, it goes on from that save
    assert main(["resume", "digits", "--hold", state.hold.opened.hold, "--run-again", "--store", bench.root]) == 0
    bench.running(2, 0, 3)
    assert bench.finish().outcome is Outcome.SUCCEEDED


@long
def test_a_job_that_meets_its_time_limit_is_resubmitted(bench):
    # given a job with a limit of a minute, which is the least that Slurm keeps
    bench.open(resources={"time_limit": "1min"})
    bench.running(1, 0, 1)
    # when it has passed
    bench.advance_until(lambda state: bench.ends(), patience=150)
    # then
    assert bench.ends() == [(1, 0, "timed_out")]
    (ended,) = bench.facts("ended")
    assert "TIMEOUT at its limit of 0:01:00" in ended.detail
    bench.running(2, 0, 3)
    assert bench.finish().outcome is Outcome.SUCCEEDED


@long
def test_a_warning_before_the_time_limit_lets_a_job_save_and_counts_as_its_time_limit(bench):
    # given a job that is to be warned
    bench.open(
        resources={"time_limit": "2min"},
        scheduler={"warning_signal": "TERM", "warning_lead": "60s"},
    )
    bench.running(1, 0, 1)
    # when Slurm warns it, up to a minute early
    bench.advance_until(lambda state: bench.ends(), patience=150)
    # then
    assert bench.ends() == [(1, 0, "timed_out")]
    bench.running(2, 0, 3)
    assert bench.finish().outcome is Outcome.SUCCEEDED


def test_an_sbatch_that_is_killed_after_it_queued_its_job_is_adopted_and_not_repeated(bench, tmp_path):
    # given an sbatch that says nothing for longer than anybody waits, though its job is queued
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/sh\n"$@"; code=$?\ncase " $* " in *" sbatch "*) echo called >>"$0.calls"; sleep 60;; esac\nexit $code\n'
    )
    slow.chmod(0o755)
    bench.open(scheduler={"command_prefix": [str(slow)], "command_time_limit": "4s", "log_folder": str(tmp_path)})
    # when it is carried on
    bench.running(1, 0, 1)
    assert bench.finish().outcome is Outcome.SUCCEEDED
    # then that one job did it
    assert (tmp_path / "slow.calls").read_text().split() == ["called"]
    assert len(bench.jobs()) == 1
    assert bench.ends() == [(1, 0, "completed")]


def test_the_log_of_a_job_is_where_logs_looks_for_it(bench, capfd):
    # given
    bench.open("print('hello from', __import__('socket').gethostname())")
    # when
    assert bench.end().outcome is Outcome.SUCCEEDED
    # then
    assert main(["logs", "digits", "--store", bench.root]) == 0
    assert "hello from n" in capfd.readouterr().out


def test_a_held_requeue_waits_for_whoever_held_it(bench):
    # given
    bench.open()
    job = bench.running(1, 0, 1)
    # when an admin puts the job back and holds it
    bench.cluster.run("scontrol", "requeuehold", job)
    state = bench.advance_until(lambda state: bench.ends() and state.newest.newest.restart == 1)
    # then it waits
    assert state.newest.newest.state is ObjectState.QUEUED
    assert bench.ends() == [(1, 0, "preempted")]
    # and goes on once it is released
    bench.cluster.run("scontrol", "release", job)
    assert bench.running(1, 1, 3) == job
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert len(bench.jobs()) == 1


def test_a_job_that_stands_still_is_running(bench):
    # given
    bench.open()
    job = bench.running(1, 0, 1)
    # when its processes are stopped, as PreemptMode=SUSPEND does
    bench.cluster.run("scontrol", "suspend", job)
    bench.cluster.until(lambda: bench.look().evidence == "SUSPENDED", "it is seen to stand still")
    state = bench.advance_until(lambda state: True)
    # then it counts as running, and nothing is done
    assert bench.look().state is state.newest.newest.state is ObjectState.RUNNING
    assert bench.ends() == [] and len(bench.jobs()) == 1
    # and it goes on
    bench.cluster.run("scontrol", "resume", job)
    assert bench.finish().outcome is Outcome.SUCCEEDED


def test_a_job_that_another_one_suspends_goes_on_after_it_as_the_same_run(bench):
    # given a job in a partition with PreemptMode=SUSPEND
    bench.open(scheduler={"partition": "lows"})
    job = bench.running(1, 0, 1)
    node = bench.cluster.run("squeue", "-h", "-j", job, "-o", "%N")
    # when it is preempted
    other = bench.cluster.job_on(node, "high", "#!/bin/sh\nexec sleep 300\n")
    bench.cluster.until(
        lambda: bench.cluster.run("squeue", "-h", "-j", job, "-o", "%T") == "SUSPENDED", "it is suspended"
    )
    bench.cluster.until(lambda: bench.look().evidence == "SUSPENDED", "it is seen to stand still")
    state = bench.advance_until(lambda state: True)
    # then it counts as running, and nothing is done
    assert bench.look().state is state.newest.newest.state is ObjectState.RUNNING
    assert bench.ends() == [] and len(bench.jobs()) == 1
    # and goes on once the other one is gone
    bench.cluster.run("scancel", other)
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "completed")] and len(bench.jobs()) == 1


def test_a_program_that_slurm_ends_has_its_sigterm_once(bench):
    # given a program that counts
    bench.open(
        "import pathlib, signal, time\n"
        "count = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: count.append(1))\n"
        "pathlib.Path('counts').touch()\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(2)\n"
        "pathlib.Path('signals').write_text(str(len(count)))\n",
    )
    bench.advance_until(lambda state: (bench.folder / "counts").exists())
    # when Slurm ends the job, which it does by a signal to all of its processes
    bench.cluster.run("scancel", bench.facts("submitted")[0].object.id)
    assert bench.end().outcome is Outcome.STOPPED
    # then the wrapper did not send it a second time
    assert (bench.folder / "signals").read_text() == "1"


def test_a_program_over_several_nodes_is_one_execution(bench):
    # given a program that is started by srun, with the wrapper around it
    bench.open(
        "import os; print(os.environ['SLURM_PROCID'], os.environ['DISPATCH_ATTEMPT'], os.uname().nodename)",
        command=["srun", "python", "program.py"],
        resources={"nodes": 2, "tasks_per_node": 1},
        setup=["export SETUP='done  so'"],
    )
    # when
    assert bench.end().outcome is Outcome.SUCCEEDED, bench.facts("ended")
    # then both tasks were of the one execution
    (ended,) = bench.facts("ended")
    assert ended.nodes == ("n1", "n2")
    (submitted,) = bench.facts("submitted")
    log = Path(bench.folder, "logs", "by-token", submitted.object.token).read_text()
    lines = sorted(
        line.split() for line in log.splitlines() if submitted.object.token in line and "dispatch:" not in line
    )
    assert [(number, node) for number, _, node in lines] == [("0", "n1"), ("1", "n2")], log
    assert len({attempt for _, attempt, _ in lines}) == 1


def test_the_environment_of_a_job_is_what_the_spec_says(bench, monkeypatch):
    # given
    monkeypatch.setenv("SBATCH_JOB_NAME", "another")
    monkeypatch.setenv("PREFECT_API_KEY", "key")
    value = "two words, $HOME 'q' \"d\" `x` \\ %"
    bench.open(
        "import os, json; json.dump(dict(os.environ), open('environment', 'w'))",
        environment={"A-B": value, "CODE": "0"},
    )
    # when
    assert bench.end().outcome is Outcome.SUCCEEDED, bench.facts("ended")
    # then
    environment = json.loads((bench.folder / "environment").read_text())
    assert environment["A-B"] == value
    assert "PREFECT_API_KEY" not in environment and "DISPATCH_RESTART" not in environment
    assert environment["SLURM_JOB_NAME"].startswith("digits.g0n1.")


@long
def test_a_job_on_a_node_that_is_cut_off_goes_on_elsewhere_while_its_old_processes_live(bench):
    # given a job on a node
    bench.open()
    job = bench.running(1, 0, 1)
    node = bench.cluster.run("squeue", "-h", "-j", job, "-o", "%N")
    bench.cluster.kit("partition.sh", node)
    try:
        # when the node is missed, then Slurm runs the job on the other one, from its last save
        assert bench.running(1, 1, 2) == job
        (ended,) = bench.facts("ended")
        assert (ended.cause.value, ended.nodes) == ("node_lost", (node,))
        # and it comes to its end, whatever the old processes do
        assert bench.finish().outcome is Outcome.SUCCEEDED
    finally:
        bench.cluster.kit("heal.sh", node)
    assert bench.ends() == [(1, 0, "node_lost"), (1, 1, "completed")]
    assert len(bench.jobs()) == 1
