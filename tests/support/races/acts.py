"""What writers do when the gate opens: some once, some over and over. Each act prepares, and returns what it does then.

Who does something over and over announces what has returned, so that readers know what they must see.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor import record as record_module
from support.races.announcements import Announcements
from support.races.places import LINEAGE, Look, open_record, open_root


def prepare(root: str, record: str) -> Look:
    lineage = open_root(root)
    return lambda: lineage.prepare(record, LINEAGE)


def record_id(record: str) -> Look:
    return open_record(record).id


def claim(root: str, epoch: int, attempt: str) -> Look:
    lineage = open_root(root)
    return lambda: lineage.claim(Epoch.of(epoch), attempt, "record-1", attempt)


def claim_and_start(root: str, epoch: int, attempt: str) -> Look:
    lineage = open_root(root)

    def act() -> None:
        lineage.claim(Epoch.of(epoch), attempt, "record-1", attempt)
        lineage.start(Epoch.of(epoch), attempt, {"host": "node1"})

    return act


def pin(root: str, epoch: int, attempt: str) -> Look:
    lineage = open_root(root)

    def act() -> list[Any]:
        pinned = lineage.pin(Epoch.of(epoch), attempt, ResumeChoice())
        assert pinned.path is None or PosixStore(Path(root)).files(pinned.path)
        return [None if pinned.publication is None else pinned.publication.name, pinned.path, pinned.state]

    return act


def publish(root: str, epoch: int, attempt: str, path: str, step: int) -> Look:
    lineage = open_root(root)
    return lambda: lineage.publish(Epoch.of(epoch), attempt, path, step).name


def complete(root: str, epoch: int, attempt: str, key: str, word: str) -> Look:
    lineage = open_root(root)
    return lambda: lineage.complete(Epoch.of(epoch), attempt, key, {"by": word}).result["by"]


def append(record: str, word: str) -> Look:
    mine = open_record(record)
    mine.refresh()
    return lambda: mine.append(CarriedBy(flow_run=word)).seq


def execute(root: str, told: str, epoch: int, attempt: str, count: int) -> Look:
    """An execution that has begun: saves, with a rotation that keeps two, states, messages and parts."""
    lineage, tell, own = open_root(root), Announcements(told).tell, Epoch.of(epoch)

    def act() -> int:
        written: list[Path] = []
        for step in range(1, count + 1):
            save = Path(root, "exec", attempt, f"step-{step}")
            save.mkdir()
            for name in ("model.bin", "optimizer.bin"):
                (save / name).write_bytes(b"%d" % step * 100)
            tell(f"pub {lineage.publish(own, attempt, f'exec/{attempt}/step-{step}', step).name}")
            written.append(save)
            if step % 3 == 0:
                tell(f"pub {lineage.publish_state(own, attempt, f'state of {step}').name}")
            entry = lineage.journal(attempt).append("status", text=f"step {step}")
            tell(f"{attempt} {entry.seq:020d}.json")
            tell(f"done {lineage.complete(own, attempt, f'part-{step}', {'step': step}).completion.name}")
            for old in written[:-2]:
                shutil.rmtree(old)
            del written[:-2]
        return count

    return act


def begin(root: str, told: str, generation: int, count: int) -> Look:
    """Executions one after another, each with a claim, a start, a pin among the others' saves, and one part."""
    lineage, tell = open_root(root), Announcements(told).tell

    def act() -> int:
        for number in range(1, count + 1):
            epoch, attempt = Epoch(generation, number, 0), attempt_of(new_token(), 0)
            lineage.claim(epoch, attempt, "record-1", attempt)
            tell(f"claims {epoch.digits}")
            lineage.start(epoch, attempt, {"host": "node1"})
            tell(f"pin {lineage.pin(epoch, attempt, ResumeChoice()).publication is not None}")
            tell(f"done {lineage.complete(epoch, attempt, 'part-1', {}).completion.name}")
        return count

    return act


def note(root: str, told: str, attempt: str, count: int) -> Look:
    """Entries of one journal that several write to."""
    lineage, tell = open_root(root), Announcements(told).tell

    def act() -> int:
        for number in range(count):
            entry = lineage.journal(attempt).append("status", text=f"{os.getpid()} {number}")
            tell(f"{attempt} {entry.seq:020d}.json")
        return count

    return act


def carry(record: str, told: str, count: int) -> Look:
    """Facts by compare-and-append: whoever loses reads on and tries again."""
    record_module.SNAPSHOT_EVERY = 16
    mine, tell = open_record(record), Announcements(told).tell

    def act() -> int:
        lost = done = 0
        while done < count:
            mine.refresh()
            try:
                seq = mine.append(CarriedBy(flow_run=f"{os.getpid()}-{done}")).seq
            except record_module.Exists:
                lost += 1
                continue
            done += 1
            tell(f"fact {seq:020d}.json")
        return lost

    return act


ACTS: dict[str, Callable[..., Look]] = {
    act.__name__: act
    for act in (
        *(prepare, record_id, claim, claim_and_start, pin, publish, complete, append),
        *(execute, begin, note, carry),
    )
}
