"""The ways in which Slurm says that a job has ended while its processes may live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_cluster.bench import SlurmBench

HOLDER = "#!/bin/sh\nexec sleep 1\n"


@dataclass(frozen=True)
class Case:
    """One way.

    Attributes:
        what: what happens, for people.
        happen: makes it happen to a job on a node.
        mend: undoes it on the node afterwards.
        partition: where the job is.
        resources: what its spec asks for.
        cancelled: whether a person's word is needed for the replacement, which is then given at once.
    """

    what: str
    happen: Callable[[SlurmBench, str, str], None]
    mend: Callable[[SlurmBench, str], None] = lambda bench, node: None
    partition: str = "low"
    resources: Mapping[str, Any] | None = None
    cancelled: bool = False


def _preempt(bench: SlurmBench, job: str, node: str) -> None:
    bench.cluster.job_on(node, "high", HOLDER)


def _kit(script: str) -> Callable[[SlurmBench, str, str], None]:
    return lambda bench, job, node: bench.cluster.kit(script, node)


def _mended_by(script: str) -> Callable[[SlurmBench, str], None]:
    return lambda bench, node: bench.cluster.kit(script, node)


CASES: Mapping[str, Case] = {
    "cancel": Case(
        "`scancel`, then reopened and run again at once",
        lambda bench, job, node: void(bench.cluster.run("scancel", job)),
        cancelled=True,
    ),
    "preempt-requeue": Case("preempted, `PreemptMode=REQUEUE`", _preempt),
    "preempt-cancel": Case("preempted, `PreemptMode=CANCEL`", _preempt, partition="lowc"),
    "time-limit": Case("its time limit", lambda bench, job, node: None, resources={"time_limit": "1min"}),
    "cut-off": Case("its node is cut off the network", _kit("partition.sh"), _mended_by("heal.sh")),
    "slurmd": Case("the slurmd of its node is killed", _kit("kill-slurmd.sh"), _mended_by("node-start.sh")),
    "power-off": Case("its node loses power", _kit("poweroff.sh"), _mended_by("node-start.sh")),
}


def void(_: object) -> None:
    """Take a value and do nothing with it."""
