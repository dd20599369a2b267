"""What goes wrong with a real Slurm while a job runs: nothing is failed for it, and nothing is submitted twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prefect_dispatch.model.facts import Outcome
from slurm_cluster.bench import SlurmBench
from slurm_cluster.cluster import Cluster
from support.full_form import FULL

long = pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")

LOGIN = r"""#!/bin/bash
# Stands in front of each of Slurm's commands; the file "mood" says how they are.
case "$(cat "$0.mood" 2>/dev/null) $*" in
hangs*) exec sleep 60 ;;
garbage*) echo 'slurm_load_jobs error'; head -c 3000 /dev/urandom; exit 0 ;;
cut*) "$@" | head -c 200; exit 0 ;;
empty*) exit 0 ;;
"somebody's"*) "$@" | sed 's/digits\.g[0-9n.]*[a-z2-7]*/interactive/; s/prefect-dispatch:[a-z2-7]*/none/'; exit 0 ;;
disabled*" sacct "*) echo 'Slurm accounting storage is disabled' >&2; exit 1 ;;
esac
exec "$@"
"""


@pytest.fixture
def bench(slurm: Cluster, tmp_path: Path) -> SlurmBench:
    return SlurmBench(slurm, tmp_path)


@pytest.fixture
def mood(tmp_path: Path) -> Callable[[str], None]:
    """Changes the mood of the commands behind the prefix ``login``."""
    login = tmp_path / "login"
    login.write_text(LOGIN)
    login.chmod(0o755)

    def change(word: str) -> None:
        new = tmp_path / "login.new"
        new.write_text(word)
        new.rename(tmp_path / "login.mood")

    return change


def behind(tmp_path: Path, **settings: object) -> dict[str, object]:
    return {
        "command_prefix": [str(tmp_path / "login")],
        "command_time_limit": "5s",
        "log_folder": str(tmp_path),
        **settings,
    }


def go_on(bench: SlurmBench, seconds: float) -> None:
    """Carry the lineage for a while, whatever comes of it."""
    until = time.monotonic() + seconds
    bench.advance_until(lambda state: time.monotonic() > until)


def test_commands_that_hang_or_say_what_they_should_not_fail_nothing_and_submit_nothing(bench, mood, tmp_path):
    # given a job that runs
    bench.open(scheduler=behind(tmp_path))
    bench.running(1, 0, 1)
    before = len(bench.record.entries())
    # when every command hangs, prints garbage, half of its answer or none, or tells of somebody else's job
    for word in ("hangs", "garbage", "cut", "empty", "somebody's"):
        mood(word)
        go_on(bench, 7 if word == "hangs" else 2)
    # then nothing follows from it
    kinds = [entry.fact.kind for entry in bench.record.entries()[before:]]
    assert set(kinds) <= {"observed"}, kinds
    # and afterwards it goes on
    mood("well")
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "completed")] and len(bench.jobs()) == 1


def test_a_site_without_accounting_preempts_and_ends_a_job_all_the_same(bench, mood, tmp_path):
    # given a site whose sacct says that there is none
    bench.open(scheduler=behind(tmp_path, command_time_limit="10s"))
    mood("disabled")
    job = bench.running(1, 0, 1)
    # when the job is preempted
    bench.preempt(job)
    # then it goes on
    assert bench.running(1, 1, 3) == job
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "preempted"), (1, 1, "completed")]
    assert len(bench.jobs()) == 1


@pytest.mark.parametrize("daemon", ["slurmctld", pytest.param("slurmdbd", marks=long)])
def test_while_a_daemon_is_down_nothing_is_failed_and_then_it_goes_on(bench, daemon):
    # given a job that was run again, so that the accounting is asked for it
    bench.open(scheduler={"command_time_limit": "10s"})
    job = bench.running(1, 0, 1)
    bench.preempt(job)
    assert bench.running(1, 1, 3) == job
    before = len(bench.record.entries())
    # when the daemon is dead for a while, in which the job ends
    with bench.cluster.dead(daemon):
        (bench.folder / "go").touch()
        go_on(bench, 6)
        kinds = [entry.fact.kind for entry in bench.record.entries()[before:]]
        assert not {"submitting", "abandoned", "hold_opened"} & set(kinds), kinds
        assert bench.ends() in ([(1, 0, "preempted")], [(1, 0, "preempted"), (1, 1, "completed")])
    # then that end is seen once it is back
    assert bench.end(150).outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "preempted"), (1, 1, "completed")]
    assert len(bench.jobs()) == 1


def test_case_36_a_restart_that_slurm_cannot_launch_is_no_failure_of_the_program(bench):
    # given a job that runs, and whose node cannot launch it again: Slurm opens the log before anything of the job runs
    bench.open(recovery={"launch_failed": {"action": "resubmit", "budget": 3, "delay": "1s"}})
    job = bench.running(1, 0, 1)
    logs = bench.folder / "logs"
    logs.rename(bench.folder / "logs-away")
    logs.touch()
    # when it is preempted, and Slurm runs it again
    bench.preempt(job)
    bench.advance_until(lambda state: len(bench.ends()) == 2)
    # then the root tells that no user code ran
    assert bench.ends() == [(1, 0, "preempted"), (1, 1, "launch_failed")]
    # and another job goes on from the last save once that is mended
    logs.unlink()
    (bench.folder / "logs-away").rename(logs)
    bench.advance_until(lambda state: any(fact.n > 1 for fact in bench.facts("submitted")))
    assert bench.finish().outcome is Outcome.SUCCEEDED
    assert bench.ends()[-1][2] == "completed" and "failed" not in {cause for _, _, cause in bench.ends()}
    assert max(step_of(bench)) == 3


def step_of(bench: SlurmBench) -> list[int]:
    """The steps that programs began at, as the names of their files say."""
    return [int(path.name.rpartition("-")[2]) for path in bench.folder.glob("begun-*")]


@long
def test_a_job_that_the_controller_has_forgotten_meanwhile_is_found_in_the_accounting(bench):
    # given a job that nobody looks after while it ends and the controller forgets it (MinJobAge)
    bench.open()
    job = bench.running(1, 0, 1)
    (bench.folder / "go").touch()
    bench.cluster.until(
        lambda: not bench.cluster.run("squeue", "-h", "-j", job, "-t", "all", check=False), "it is forgotten", 240
    )
    # when somebody looks again, then its end is known, and it is not submitted again
    assert bench.end().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "completed")] and len(bench.jobs()) == 1


@long
def test_without_accounting_a_job_that_the_controller_has_forgotten_is_told_by_the_root_or_held(bench):
    # given the same at a site without accounting
    bench.open(scheduler={"accounting": False})
    job = bench.running(1, 0, 1)
    (bench.folder / "go").touch()
    bench.cluster.until(
        lambda: not bench.cluster.run("squeue", "-h", "-j", job, "-t", "all", check=False), "it is forgotten", 240
    )
    # when somebody looks again, then nothing is submitted a second time
    bench.advance_until(lambda state: state.hold is not None or state.finished is not None, 200)
    assert len(bench.facts("submitting")) == 1 and len(bench.jobs()) == 1
