"""The record: from a fresh view of a long one to its folded state, beside the bare reads that this takes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Cessation
from prefect_dispatch.model.fold import FOLD_VERSION, apply
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.record import SNAPSHOT_EVERY, snapshot_of
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import Story, object_of
from rows.line import Line, Target
from rows.lineage import LINEAGE, open_record
from rows.pairs import take_pairs
from rows.setting import Setting

EXECUTIONS = 100


def measure(setting: Setting) -> list[Line]:
    """Read a record of many facts: a hundred executions that were preempted, and what a site said about holds."""
    facts = setting.choose(20_000, 200)
    setting.tell(f"  making a record of {facts:,} facts")
    store = PosixStore(setting.folder / LINEAGE)
    store.probe()
    state = write_record(setting.folder / LINEAGE, facts)
    names = _read_by_hand(setting.folder / LINEAGE)

    def fold(number: int) -> None:
        assert open_record(store, SystemClock()).refresh().seq == state.seq

    pairs = take_pairs(fold, lambda number: _read_by_hand(setting.folder / LINEAGE), setting.pairs(15))
    return [
        Line(
            setting.row,
            f"record of {facts:,} facts with snapshots, POSIX",
            pairs.median_ours * 1e3,
            pairs.median_bare * 1e3,
            "ms",
            pairs.ratio,
            len(pairs),
            pairs.median_ours * 1e3,
            Target(100, "ms"),
            f"bare: listing its {names:,} names, reading the newest snapshot and the facts behind it",
        )
    ]


def write_record(place: Path, facts: int) -> LineageState:
    """Write the files that so many appends would have left, without making each durable."""
    story = Story(capabilities=SCRIPTED.model_copy(update={"requeue": False}))
    executions = min(EXECUTIONS, facts // 10)
    for n in range(1, executions + 1):
        story.submit()
        story.run(n)
        story.end(Cause.PREEMPTED, n, published=n)
        story.later(timedelta(minutes=30))
    while len(story.entries) < facts:
        answer = Cessation(hold="h1", object=object_of(executions), answer="running", detail="still there")
        story.tell(answer)
        story.later(timedelta(minutes=1))
    record, snapshots = place / "record", place / "fold" / str(FOLD_VERSION)
    record.mkdir()
    snapshots.mkdir(parents=True)
    state = LineageState()
    for entry in story.entries:
        (record / f"{entry.seq:020d}.json").write_bytes(entry.encode())
        state = apply(state, entry)
        if state.seq % SNAPSHOT_EVERY == 0:
            (snapshots / f"{state.seq:020d}.json").write_bytes(snapshot_of(state, entry.encode()))
    return state


def _read_by_hand(place: Path) -> int:
    names = sorted(path.name for path in (place / "record").iterdir())
    snapshots = sorted((place / "fold" / str(FOLD_VERSION)).iterdir())
    snapshots[-1].read_bytes()
    for name in names[len(names) // SNAPSHOT_EVERY * SNAPSHOT_EVERY :]:
        (place / "record" / name).read_bytes()
    return len(names)
