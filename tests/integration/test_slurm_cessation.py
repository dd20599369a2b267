"""A site's cessation command on a real Slurm: it tells this run of a job from the next, and lifts holds."""

from __future__ import annotations

import asyncio
import shlex
import time
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.model.facts import LiftedBy, Outcome
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.schedulers.command_signal import CommandSignal
from prefect_dispatch.supervisor.cessation import ask_about_holds, signal_for
from prefect_dispatch.supervisor.clock import SystemClock
from slurm_cluster.bench import SlurmBench
from slurm_cluster.cluster import KIT, Cluster
from support.full_form import FULL

long = pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "slurm-cessation"
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"runs-{os.environ['DISPATCH_ATTEMPT'][-1]}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""
"""It ends by itself or by SIGKILL."""


@pytest.fixture
def bench(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmBench:
    kit = ["-d", str(slurm.folder / "cluster")]
    monkeypatch.setenv("SITE_SSH", shlex.join([str(KIT / "node-exec.sh"), *kit]))
    monkeypatch.setenv("SITE_POWER", shlex.join([str(KIT / "power.sh"), *kit]))
    return SlurmBench(slurm, tmp_path)


def command() -> list[str]:
    return [str(EXAMPLE), "{object}", "{restart}", "{attempt}", "{node}"]


def ask(bench: SlurmBench, restart: int, node: str) -> CessationAnswer:
    (submitted,) = bench.facts("submitted")
    attempt = f"{submitted.object.token}-{restart}"
    ended = EndedObject(lineage="digits", object=submitted.object, restart=restart, attempt=attempt, nodes=(node,))
    return asyncio.run(CommandSignal(command=tuple(command())).ask(ended))


def node_of(bench: SlurmBench) -> str:
    return bench.cluster.run("squeue", "-h", "-j", bench.facts("submitted")[0].object.id, "-o", "%N")


def runs(bench: SlurmBench, restart: int) -> str:
    """Wait until a run's program runs; its node."""
    bench.advance_until(lambda state: (bench.folder / f"runs-{restart}").exists() and node_of(bench))
    return node_of(bench)


def test_a_run_of_a_job_is_told_from_the_next_one_on_the_same_node(bench):
    # given a job that Slurm runs a second time, on the one node that it may use
    bench.open(STUBBORN, resources={"options": {"nodelist": "n1"}})
    assert runs(bench, 0) == "n1"
    assert ask(bench, 0, "n1").answer == "running"
    bench.preempt(bench.facts("submitted")[0].object.id)
    # when the same number runs there again
    assert runs(bench, 1) == "n1"
    # then the first run's processes are gone, and the second's are not
    assert ask(bench, 0, "n1").answer == "ceased"
    assert ask(bench, 1, "n1").answer == "running"
    # nor is there anything where it never was
    assert ask(bench, 1, "n2").answer == "ceased"
    (bench.folder / "go").touch()
    assert bench.end().outcome is Outcome.SUCCEEDED
    assert ask(bench, 1, "n1").answer == "ceased"


@long
@pytest.mark.parametrize("until", ["healed", "switched off"])
def test_a_hold_for_a_shared_checkpoint_stands_until_the_nodes_processes_are_gone(bench, until):
    # given a job with a shared checkpoint on a node that is cut off and missed
    bench.open(STUBBORN, scheduler={"cessation_command": command()}, shared_checkpoint=True)
    node = runs(bench, 0)
    bench.cluster.kit("partition.sh", node)
    try:
        bench.advance_until(lambda state: state.hold is not None)
        assert bench.ends() == [(1, 0, "node_lost")]
        # then nobody knows, and nothing starts
        for _ in range(3):
            polled = poll(bench)
            assert polled.answer is not None and polled.answer.answer == "unknown", polled
            bench.advance_until(lambda state: True)
        assert bench.facts("hold_lifted") == [] and len(bench.jobs()) == 1
        # when the node is switched off, or healed, after which Slurm ends what it has there
        bench.cluster.kit("poweroff.sh" if until == "switched off" else "heal.sh", node)
        give_up = time.monotonic() + 120
        while poll(bench).lifted_by is None:
            assert time.monotonic() < give_up, bench.facts("cessation")
            time.sleep(1)
    finally:
        bench.cluster.kit("heal.sh", node)
        bench.cluster.kit("node-start.sh", node)
    # then the hold is lifted by the site's word alone, and another job takes over
    (lifted,) = bench.facts("hold_lifted")
    assert lifted.lifted_by is LiftedBy.SIGNAL
    (bench.folder / "runs-0").unlink()
    bench.advance_until(lambda state: (bench.folder / "runs-0").exists())
    (bench.folder / "go").touch()
    assert bench.end().outcome is Outcome.SUCCEEDED
    assert bench.ends() == [(1, 0, "node_lost"), (2, 0, "completed")]


def poll(bench: SlurmBench):
    """One poll of the site about the lineage's hold."""
    asked = ask_about_holds([bench.record], signal_for(None), SystemClock(), within=timedelta(seconds=30))
    (polled,) = asyncio.run(asked)
    assert not polled.trouble, polled
    return polled
