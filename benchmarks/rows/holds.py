"""The holds: one poll of many open ones, whose site takes a second for each, beside that second alone."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import HoldOpened, Opened
from prefect_dispatch.model.fold import FOLD_VERSION, apply
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.cessation import AT_A_TIME, ask_about_holds
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import SNAPSHOT_EVERY, Record, snapshot_of
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.scripted_signal import ScriptedSignal
from prefect_dispatch.testing.story import Story
from rows.line import Line, Target
from rows.setting import Setting

POLLS = (("running", "each answer is news"), ("running", "none is news"), ("ceased", "each hold is lifted"))
BEFORE = 10
"""Executions of each job before the one that it is held for."""


def measure(setting: Setting) -> list[Line]:
    """Poll a site that says each word in turn, each time as a new process sees the records."""
    holds, takes = setting.choose(1000, 20), setting.choose(1.0, 0.05)
    setting.tell(f"  making {holds:,} held lineages")
    lineages = [f"held-{number}" for number in range(holds)]
    for lineage in lineages:
        _write_held(setting.folder, lineage)
    bare = statistics.median(_seconds_of(_bare(holds, takes)) for _ in range(setting.pairs(3, 1)))
    lines = []
    for word, what in (
        ("running", "each answer is news"),
        ("running", "none is news"),
        ("ceased", "each hold is lifted"),
    ):
        setting.tell(f"  a poll in which {what}")
        signal = ScriptedSignal(CessationAnswer(word), takes_seconds=takes)  # type: ignore[arg-type]
        records = [open_record(str(setting.folder), lineage, SystemClock()) for lineage in lineages]
        ours = _seconds_of(_poll(records, signal))
        assert len(signal.asked) == holds
        lines.append(
            Line(
                setting.row,
                f"{holds:,} open holds, signals of {takes:g} s, POSIX: {what}",
                ours,
                bare,
                "s",
                ours / bare,
                1,
                ours,
                Target(30, "s"),
                f"bare: the signals alone, {AT_A_TIME} at a time",
            )
        )
    return lines


async def _poll(records: list[Record], signal: ScriptedSignal) -> None:
    polled = await ask_about_holds(records, lambda state: signal, SystemClock())
    troubles = [each.trouble for each in polled if each.trouble]
    assert troubles == [], troubles[0]


async def _bare(holds: int, takes: float) -> None:
    signal, slots = ScriptedSignal(CessationAnswer("running"), takes_seconds=takes), asyncio.Semaphore(AT_A_TIME)
    story = Story()
    story.submit()
    reference = story.newest.object
    assert reference is not None
    ended = EndedObject(lineage="x", object=reference, restart=0, attempt=story.newest.attempt(0), nodes=("node1",))

    async def ask() -> None:
        async with slots:
            await signal.ask(ended)

    await asyncio.gather(*(ask() for _ in range(holds)))


def _seconds_of(work) -> float:
    began = time.monotonic()
    asyncio.run(work)
    return time.monotonic() - began


def _write_held(folder: Path, lineage: str) -> None:
    """Write the facts that a job leaves which was run many times and is held now, without making each durable."""
    recovery = {"preempted": {"action": "requeue", "budget": BEFORE + 10}}
    spec = {"lineage": lineage, "shared_checkpoint": True, "recovery": recovery, "hold_for": "30d"}
    story = Story(spec, SCRIPTED.model_copy(update={"requeue": False}))
    story.now = SystemClock().now()
    for n in range(1, BEFORE + 1):
        story.submit()
        story.run(n)
        story.end(Cause.PREEMPTED, n, published=n)
        story.hold()
        if n < BEFORE:
            story.lift()
    assert isinstance(story.entries[0].fact, Opened)
    PosixStore(folder / lineage).probe()
    record, snapshots = folder / lineage / "record", folder / lineage / "fold" / str(FOLD_VERSION)
    record.mkdir()
    snapshots.mkdir(parents=True)
    state = LineageState()
    for entry in story.entries:
        (record / f"{entry.seq:020d}.json").write_bytes(entry.encode())
        state = apply(state, entry)
        if state.seq % SNAPSHOT_EVERY == 0 or isinstance(entry.fact, HoldOpened):
            (snapshots / f"{state.seq:020d}.json").write_bytes(snapshot_of(state, entry.encode()))
