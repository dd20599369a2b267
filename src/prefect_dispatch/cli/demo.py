"""``prefect-dispatch demo``: a training, taken away twice while its old processes live on, ends as the same run."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.cli.output import print_json, print_table
from prefect_dispatch.cli.status import execution_rows
from prefect_dispatch.cli.temporary_server import prefect_api
from prefect_dispatch.cli.timeline import svg_timeline, text_timeline
from prefect_dispatch.errors import Absent, LineageError, RootAbsent, StoreError, UsageError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.pictures.history import History, history_of
from prefect_dispatch.pictures.tables import table_row
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.settings import state_folder
from prefect_dispatch.stores.layout import exec_folder
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.workplace import workplace_of
from prefect_dispatch.supervisor.assemble import plan_of, root_view_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import absolute_root, check_reachable, open_record

EPOCHS = 40
SECONDS_PER_EPOCH = 0.5
STUBBORN_SECONDS = 10.0
"""How long the program goes on after it was asked to stop: a good deal longer than its replacement takes to start."""
PREEMPTIONS = 2
LINGER = timedelta(seconds=60)
GIVE_UP_SECONDS = 240.0


@dataclass(frozen=True)
class Place:
    """Where the demo works: a root, and a folder of this machine for what cannot lie in a bucket."""

    root: str
    folder: Path

    @classmethod
    def of(cls, given: str | None) -> Place:
        """The place that was given; else a new folder of the user's."""
        root = absolute_root(given or str(_new_root()), Path.cwd())
        return cls(root, _new_root() if is_url(root) else Path(root))


@dataclass(frozen=True)
class Preemption:
    """One preemption, drawn from the seed: after so many saves of the execution, and a moment more."""

    after_saves: int
    pause_seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--store", metavar="PATH", help="the root, also s3://BUCKET/PREFIX (default: a new folder of the user's)"
    )
    parser.add_argument("--seed", type=int, help="draws the moments of the preemptions (default: a new one, printed)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Run the command. Exit 0 only if the interrupted run ended with the weights of the uninterrupted one."""
    _need_scikit_learn()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    place = Place.of(options.store)
    say = _silent if options.json else _say
    say(f"seed {seed}, store {place.root}")
    with prefect_api() as api:
        job = _open_free_lineage(place)
        lineage = job.spec.lineage
        say(f"lineage {lineage}; while it runs, look at {api.removesuffix('/api')}")
        result, history = asyncio.run(_demonstrate(place, job, _draw(seed), say))
    result = {"seed": seed, "lineage": lineage, "store": place.root, **result}
    picture = place.folder / f"{lineage}-timeline.svg"
    picture.write_text(svg_timeline(lineage, history), encoding="utf-8")
    result["timeline"] = str(picture)
    if options.json:
        print_json(result)
    else:
        _show(result, history)
    return 0 if result["equal"] else 1


def _draw(seed: int) -> list[Preemption]:
    draw = random.Random(seed)
    return [Preemption(draw.randint(3, 8), draw.uniform(0.0, 1.0)) for _ in range(PREEMPTIONS)]


async def _demonstrate(
    place: Place, job: ResolvedJob, preemptions: list[Preemption], say: Callable[[str], None]
) -> tuple[dict[str, Any], History]:
    """Run the same training twice: once as a job that is preempted, once in one go."""
    lineage = job.spec.lineage
    scheduler = LocalScheduler(_state_path(place, lineage), 1, LINGER)
    one_go = asyncio.create_task(asyncio.to_thread(_train_in_one_go))
    say("starting the training under supervise, and once more without interruption for comparison")
    taker = asyncio.create_task(_take_away(place, lineage, scheduler, preemptions, say))
    state = await _supervise(job.spec, place)
    taken = await _outcome_of(taker)
    if state.finished is None or state.finished.outcome is not Outcome.SUCCEEDED:
        why = state.finished.detail if state.finished is not None else "it is not over"
        raise LineageError(
            f"the demo's job did not succeed: {why}; see prefect-dispatch status {lineage} --store {place.root}; "
            f"to go on with it: prefect-dispatch submit {place.folder / lineage}.yaml --wait"
        )
    if taken < len(preemptions):
        raise LineageError(f"the job was over after {taken} of {len(preemptions)} preemptions; try again")
    await asyncio.to_thread(_wait_for_old_processes, scheduler, state)
    history = await asyncio.to_thread(_history_of, place, lineage, state)
    uninterrupted = await one_go
    final = _final_digest(place, lineage, history)
    return {
        "executions": execution_rows(history),
        "overlap_seconds": [round(row.overlap.total_seconds(), 2) for row in history.rows if row.overlap is not None],
        "final_digest": final,
        "uninterrupted_digest": uninterrupted,
        "equal": final == uninterrupted,
    }, history


def _state_path(place: Place, lineage: str) -> Path:
    return place.folder / ".demo" / lineage


def _workplaces(place: Place, lineage: str) -> Path:
    return _state_path(place, lineage) / "workplaces"


def _spec(place: Place, lineage: str) -> JobSpec:
    own = {"workplace": str(_workplaces(place, lineage))} if is_url(place.root) else {}
    return JobSpec.read(
        {
            **own,
            "lineage": lineage,
            "command": [sys.executable, *_training(SECONDS_PER_EPOCH, STUBBORN_SECONDS)],
            "workdir": str(place.folder),
            "store": {"root": place.root},
            "scheduler": {
                "type": "local",
                "state_folder": str(_state_path(place, lineage)),
                "linger": f"{LINGER.total_seconds():g}s",
            },
            "saves": {"kind": "marker"},
            "identity": {"data": "digits-1797", "epochs": EPOCHS},
            "watch_interval": "200ms",
        },
        "the demo's job",
    )


async def _supervise(spec: JobSpec, place: Place) -> LineageState:
    # Prefect takes seconds to import; by now the comparison is under way.
    from prefect_dispatch.flows.supervise import carry

    await carry(spec)
    return open_record(place.root, spec.lineage, SystemClock()).refresh()


async def _take_away(
    place: Place, lineage: str, scheduler: LocalScheduler, preemptions: list[Preemption], say: Callable[[str], None]
) -> int:
    """Play the cluster: preempt each of the first executions once it has saved as often as was drawn."""
    taken = 0
    record = open_record(place.root, lineage, SystemClock())
    for number, preemption in enumerate(preemptions, start=1):
        while True:
            state = await asyncio.to_thread(record.refresh)
            submission = state.newest
            if submission is not None and submission.n == number and submission.object is not None:
                saves = await asyncio.to_thread(_saves_of, lineage, state, submission.epoch(0))
                if saves >= preemption.after_saves:
                    break
            await asyncio.sleep(0.1)
        await asyncio.sleep(preemption.pause_seconds)
        if await scheduler.preempt(submission.object):
            taken += 1
            say(f"preempted {submission.epoch(0)} after {saves} saves; its processes live on")
    return taken


async def _outcome_of(taker: asyncio.Task[int]) -> int:
    """How many preemptions there were by the job's end. What went wrong with them is raised."""
    if not taker.done():
        taker.cancel()
    try:
        return await taker
    except asyncio.CancelledError:
        return 0


def _history_of(place: Place, lineage: str, state: LineageState) -> History:
    record = open_record(place.root, lineage, SystemClock())
    return history_of(record.entries(), root_view_of(lineage, state))


def _saves_of(lineage: str, state: LineageState, epoch: Epoch) -> int:
    root = root_view_of(lineage, state)
    publications = root.publications() if root is not None else None
    return sum(1 for publication in publications or [] if publication.epoch == epoch)


def _wait_for_old_processes(scheduler: LocalScheduler, state: LineageState) -> None:
    """The old processes end by themselves; what they did meanwhile is part of the picture."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    for submission in state.submissions:
        while submission.object is not None and scheduler.processes(submission.object):
            if time.monotonic() > give_up:
                raise LineageError(f"processes of {submission.object} are still there after {GIVE_UP_SECONDS:g}s")
            time.sleep(0.1)


def _train_in_one_go() -> str:
    """The digest of a run that nobody interrupts, by the same program without any of our parts."""
    with tempfile.TemporaryDirectory(prefix="prefect-dispatch-demo-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DISPATCH_")}
        done = subprocess.run(
            [sys.executable, *_training(0.0, 0.0)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=GIVE_UP_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise LineageError(f"the uninterrupted training failed: {done.stderr.strip()[-500:]}")
        return _read_digest(Path(folder) / "final.json")


def _training(seconds_per_epoch: float, stubborn_seconds: float) -> list[str]:
    return [
        str(_program()),
        "--epochs",
        str(EPOCHS),
        "--seconds-per-epoch",
        f"{seconds_per_epoch:g}",
        "--stubborn",
        f"{stubborn_seconds:g}",
    ]


def _program() -> Path:
    """The training program: beside this package where it was installed, else in the repository."""
    package = Path(__file__).parents[1]
    for place in (package / "examples", package.parents[1] / "examples"):
        program = place / "train_digits.py"
        if program.is_file():
            return program
    raise UsageError(f"train_digits.py is neither in {package / 'examples'} nor in the repository; install again")


def _final_digest(place: Place, lineage: str, history: History) -> str:
    """What the program noted at its end, which is no save: with a bucket it stays where the program wrote it."""
    attempt = history.rows[-1].attempt
    folder = place.folder / lineage
    if is_url(place.root):
        folder = Path(workplace_of(str(_workplaces(place, lineage)), lineage, attempt))
    try:
        return _digest_of(PosixStore(folder).ledger(exec_folder(attempt)).read("final.json"))
    except (Absent, RootAbsent, ValueError, KeyError) as error:
        raise StoreError(f"{folder}/{exec_folder(attempt)}/final.json does not tell the digest: {error}") from None


def _read_digest(path: Path) -> str:
    try:
        return _digest_of(path.read_bytes())
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"{path} does not tell the digest of the final weights: {error}") from None


def _digest_of(document: bytes) -> str:
    return str(json.loads(document)["digest"])


def _new_root() -> Path:
    return state_folder() / "demo" / time.strftime("%Y%m%d-%H%M%S")


def _open_free_lineage(place: Place) -> ResolvedJob:
    """Open the first lineage name that nobody has taken, and keep its spec beside it, to be submitted again."""
    check_reachable(place.root)
    place.folder.mkdir(parents=True, exist_ok=True)
    for name in ("digits", *(f"digits-{n}" for n in range(2, 10_000))):
        record = open_record(place.root, name, SystemClock())
        if record.refresh().opened is not None:
            continue
        spec = _spec(place, name)
        job = asyncio.run(resolve(spec, place.folder))
        try:
            open_lineage(record, job, plan_of(job))
        except LineageError:
            continue
        if record.entries()[0].by == record.writer:
            (place.folder / f"{name}.yaml").write_text(spec.model_dump_json(), encoding="utf-8")
            return job
    raise LineageError(f"all names of a demo are taken in {place.root}; give another --store")


def _need_scikit_learn() -> None:
    from importlib.util import find_spec

    if find_spec("sklearn") is None:
        raise UsageError("the demo needs scikit-learn: pip install 'prefect-dispatch[demo]'")


def _show(result: dict[str, Any], history: History) -> None:
    shown = ("epoch", "ended as", "resumed from", "saves", "lived beside the next")
    print()
    print_table([{name: table_row(row)[name] for name in shown} for row in history.rows])
    print()
    print(text_timeline(result["lineage"], history))
    print(f"picture:                      {result['timeline']}")
    print(f"final weights:                {result['final_digest']}")
    print(f"of an uninterrupted run:      {result['uninterrupted_digest']}")
    print("the same run" if result["equal"] else "NOT the same run")


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    pass
