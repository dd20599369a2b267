"""One trial: a job that ignores SIGTERM and goes on saving, what happens to it, and its replacement."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.pin import read_pin
from prefect_dispatch.supervisor.choices import reopen, run_again
from prefect_dispatch.supervisor.places import open_lineage_root
from slurm_cluster.bench import SlurmBench
from slurm_cluster.cluster import Cluster
from slurm_trials.cases import Case

PROGRAM = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
source = os.environ["DISPATCH_RESUME_FROM"]
step = int(pathlib.Path(source, ".complete").read_text()) if source else 0
who = "new" if source else "old"
while True:
    step += 1
    place = folder / f"save-{step}"
    place.mkdir()
    (place / "weights").write_bytes(os.urandom(1000))
    (place / ".complete").write_text(str(step))
    with open(f"{who}.beats", "a") as beats:
        beats.write(f"{time.time()} {step} {os.environ['DISPATCH_ATTEMPT']}\\n")
    if source and pathlib.Path("go").exists():
        sys.exit(0)
    time.sleep(float(os.environ["PAUSE"]))
"""
PERIOD = "1h"
"""The notice period, so that it is Slurm and not the wrapper that ends the program."""
LINGER = 8.0
"""Seconds for which old and new go on side by side, where they do, before the node is mended."""
SILENCE = 5.0
"""Who has not saved for so many seconds is gone."""


@dataclass(frozen=True)
class Measured:
    """What was seen, in seconds after Slurm's accounting said that the run had ended.

    Attributes:
        said: from what happened to that; for a time limit, from the job's start.
        lived: to the old run's last save; negative where it was gone before.
        until_mended: whether it lived until its node was mended.
        submitted: to the next ``sbatch``; None where Slurm itself ran the job again.
        first_step: to the replacement's first save.
        together: how long both wrote.
        late: publications of the old run after the replacement's first save.
        faults: what went wrong with the saves; empty where nothing did.
    """

    said: float
    lived: float
    until_mended: bool
    submitted: float | None
    first_step: float
    together: float
    late: int
    faults: tuple[str, ...]


def run_trial(case: Case, cluster: Cluster, folder: Path, patience: float, sample: float, pause: float) -> Measured:
    """Run one, to the end of its job.

    Args:
        case: what happens.
        cluster: where.
        folder: an empty folder.
        patience: seconds within which each step of it has to come about.
        sample: seconds between two looks at the accounting.
        pause: seconds between two saves of the job.
    """
    bench = SlurmBench(cluster, folder)
    bench.open(
        PROGRAM,
        scheduler={"partition": case.partition, "poll_interval": "1s", "restart_bound": "5s"},
        environment={"PAUSE": str(pause)},
        checkpoint_cancelation={"mode": "notify_then_terminate", "signal": "TERM", "notify_period": PERIOD},
        **({"resources": dict(case.resources)} if case.resources else {}),
    )
    root = open_lineage_root(bench.root, "digits")
    bench.advance_until(lambda state: bench.facts("submitted") and root.publications(), patience)
    job = bench.facts("submitted")[0].object.id
    node = cluster.run("squeue", "-h", "-j", job, "-o", "%N")
    began = beats(bench, "old")[0][0] if case.resources else time.time()
    with Sampler(cluster, job, sample) as sampler:
        case.happen(bench, job, node)
        if case.cancelled:
            bench.advance_until(lambda state: state.finished is not None, patience)
            reopen(bench.record, who="operator")
            bench.advance_until(lambda state: state.hold is not None, patience)
            run_again(bench.record, who="operator")
        bench.advance_until(lambda state: beats(bench, "new"), patience)
        _go_on(bench, LINGER)
        mended = time.time()
        alive = mended - beats(bench, "old")[-1][0] < SILENCE
        case.mend(bench, node)
        bench.advance_until(lambda state: time.time() - beats(bench, "old")[-1][0] > SILENCE, patience)
        faults = _faults(bench)
        (bench.folder / "go").touch()
        finished = bench.end(patience)
    if finished.outcome.value != "succeeded":
        faults.append(f"it ended as {finished.outcome.value}")
    old, new = beats(bench, "old"), beats(bench, "new")
    submitting = [entry for entry in bench.record.entries() if entry.fact.kind == "submitting"]
    assert sampler.said is not None, "the accounting never said that it ended"
    first = new[0][0]
    late = [each for each in root.publications() if each.epoch.restart == 0 and each.epoch.submission == 1]
    return Measured(
        said=sampler.said - began,
        lived=old[-1][0] - sampler.said,
        until_mended=alive,
        submitted=submitting[1].at.timestamp() - sampler.said if len(submitting) > 1 else None,
        first_step=first - sampler.said,
        together=max(0.0, old[-1][0] - first),
        late=sum(1 for each in late if _published_at(bench, each) > first),
        faults=tuple(faults),
    )


def beats(bench: SlurmBench, who: str) -> list[tuple[float, int, str]]:
    """When the old or the new program saved, which step, and as which attempt."""
    path = bench.folder / f"{who}.beats"
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(at), int(step), attempt) for at, step, attempt in (line for line in lines if len(line) == 3)]


def _go_on(bench: SlurmBench, seconds: float) -> None:
    until = time.monotonic() + seconds
    bench.advance_until(lambda state: time.monotonic() > until, seconds + 60)


def _published_at(bench: SlurmBench, publication: Publication) -> float:
    return (Path(bench.root) / "digits" / "pub" / publication.name).stat().st_mtime


def _faults(bench: SlurmBench) -> list[str]:
    """What is wrong: the replacement began at the wrong save, or what the old run wrote late counts."""
    root = open_lineage_root(bench.root, "digits")
    attempt = beats(bench, "new")[0][2]
    pin = read_pin(root.store, attempt)
    assert pin is not None and pin.publication is not None
    pinned_at = (Path(bench.root) / "digits" / "meta" / attempt / "resume.json").stat().st_mtime
    mine = next(each.epoch for each in root.publications() if attempt in each.path)
    there = [each for each in root.publications() if each.epoch < mine and _published_at(bench, each) < pinned_at - 1]
    faults = []
    newest_then = max(there, key=_rank)
    if _rank(pin.publication) < _rank(newest_then):
        faults.append(f"resumed from {pin.publication.name}, and {newest_then.name} was there")
    newest = root.latest().publication
    if newest is None or newest.epoch < mine:
        faults.append("the newest save is the old run's")
    return faults + [str(fault) for fault in root.check() if fault.severity is Severity.FAULT]


def _rank(publication: Publication) -> tuple[int, int]:
    return publication.epoch.number, publication.step


class Sampler:
    """Notes when the accounting first says that the first run of a job has ended."""

    def __init__(self, cluster: Cluster, job: str, sample: float) -> None:
        self.said: float | None = None
        self._cluster = cluster
        self._job = job
        self._sample_seconds = sample
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while self.said is None and not self._over.is_set():
            words = ("sacct", "-D", "-X", "-P", "-n", "-j", self._job, "-o", "State")
            states = self._cluster.run(*words, check=False).split("\n")
            if states[0] and states[0] not in ("PENDING", "RUNNING"):
                self.said = time.time()
            self._over.wait(self._sample_seconds)
