"""A program that lets processes race: it forks them, holds all at one gate, opens it, kills some, and tells what came.

It reads one JSON object a line, ``{"writers": [run, …], "readers": [run, …], "kills": [[writer, seconds], …]}``, where
a run is ``{"act": name, …}`` with the act's arguments, and answers with one line, the outcomes of writers and readers.
It exists since starting a Python for each racer would cost more than the race, and a fork of a small program is cheap.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.model.fold import fold
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor import record as record_module
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.record import Record

Look = Callable[[], Any]
LINEAGE = "digits"
MOST_FAULTS = 5


def open_root(place: str) -> LineageRoot:
    return LineageRoot(PosixStore(Path(place)))


def open_record(place: str) -> Record:
    index = PosixStore(Path(place)).ledger(".dispatch/open")
    return Record(PosixStore(Path(place, LINEAGE)), index, LINEAGE, SystemClock())


# What one process does once, when the gate opens. Each act prepares, and returns what it does then.


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


# What one process does over and over. Each announces what has returned, so that readers know what they must see.


class Announcements:
    """A file that writers append lines to, each whole, and that readers read on."""

    def __init__(self, place: str) -> None:
        self._descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._seen = 0
        self._lines: list[str] = []

    def tell(self, line: str) -> None:
        os.write(self._descriptor, line.encode() + b"\n")

    def read(self, kind: str) -> set[str]:
        """All lines of a kind so far, without it."""
        data = b""
        while block := os.pread(self._descriptor, 1 << 20, self._seen + len(data)):
            data += block
        whole = data[: data.rfind(b"\n") + 1]
        self._seen += len(whole)
        self._lines += whole.decode().splitlines()
        return {line.removeprefix(f"{kind} ") for line in self._lines if line.startswith(f"{kind} ")}


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


# What one process reads over and over while the others write. Each look returns what it must not have seen.


def see_names(root: str, told: str, folder: str, kind: str) -> Look:
    """Names that were there before a listing began are in it; counts listings of numbers with a hole."""
    ledger, announced = PosixStore(Path(root)).ledger(folder), Announcements(told)
    before: set[str] = set()
    holes = [0]

    def look() -> list[str]:
        known = announced.read(kind) | before
        names = ledger.names()
        before.update(names)
        if kind == "fact" or folder.endswith("/journal"):
            holes[0] += len(names) != int(names[-1].removesuffix(".json")) if names else 0
        return [f"{folder}: {name} is missing" for name in known.difference(names)]

    look.count = lambda: holes[0]  # type: ignore[attr-defined]
    return look


def see_publications(root: str, told: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: set[str] = set()

    def look() -> list[str]:
        known = announced.read("pub") | before
        found = lineage.publications()
        before.update(each.name for each in found)
        faults = [f"{name} is missing" for name in known - before.intersection(each.name for each in found)]
        return faults + (["they are out of order"] if found != sorted(found, key=lambda each: each.order) else [])

    return look


def see_latest(root: str, told: str) -> Look:
    """The resume point is never below one that was returned before, by a publishing or by a look."""
    lineage, announced = open_root(root), Announcements(told)
    greatest: list[tuple[int, int, bytes]] = []

    def look() -> list[str]:
        known = [Publication.parse(name).order for name in announced.read("pub")]
        resume = lineage.latest()
        if resume.publication is None:
            return ["there is none"] if known or greatest else []
        forged = [f"forged: {entry}" for entry in resume.passed_over if entry.forged]
        unproven = [f"unproven: {entry}" for entry in resume.passed_over if "no manifest" in entry.why]
        floor = max([*known, *greatest], default=None)
        # The newest save of an execution is never rotated away, so nothing above may have been passed over.
        back = [f"{resume.publication.name} after {floor}"] if floor and resume.publication.order < floor else []
        greatest[:] = [resume.publication.order]
        return forged + unproven + back

    return look


def see_completions(root: str, told: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: dict[str, Epoch] = {}

    def look() -> list[str]:
        known = announced.read("done")
        found = lineage.completions()
        faults = [f"passed over: {entry} {why}" for entry, why in found.passed_over]
        listed = {entry.name for entry in found.parts.values()}
        for key, entry in found.parts.items():
            above = [name for name in known if name.startswith(entry.name[:-20]) and name > entry.name]
            faults += [f"{name} outranks {entry.name}" for name in above]
            if before.get(key, entry.epoch) > entry.epoch:
                faults.append(f"{key} went back to {entry.epoch}")
            lineage.finished_part(entry)
        faults += [f"{key} is missing" for key in before if key not in found.parts]
        faults += [f"{name} has no entry" for name in known - listed if not any(n[:-20] == name[:-20] for n in listed)]
        before.update({key: entry.epoch for key, entry in found.parts.items()})
        return faults

    return look


def see_journal(root: str, told: str, attempt: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: dict[int, Any] = {}

    def look() -> list[str]:
        known = {int(name.removesuffix(".json")) for name in announced.read(attempt)} | set(before)
        found = {entry.seq: entry for entry in lineage.journal(attempt).entries()}
        faults = [f"entry {seq} is missing" for seq in known - set(found)]
        faults += [f"entry {seq} changed" for seq in before if seq in found and before[seq] != found[seq]]
        before.update(found)
        return faults

    return look


def see_check(root: str, told: str) -> Look:
    lineage = open_root(root)
    return lambda: [str(fault) for fault in lineage.check() if fault.severity is Severity.FAULT]


def see_record(record: str, told: str, anew: bool) -> Look:
    """A record as a supervisor sees it that goes on reading, or as one that has only just come."""
    announced, kept = Announcements(told), open_record(record)
    before = [0]

    def look() -> list[str]:
        known = max([before[0], *(int(name.removesuffix(".json")) for name in announced.read("fact"))])
        state = (open_record(record) if anew else kept).refresh()
        entries = open_record(record).entries()
        faults = [f"seq {state.seq} after {known}"] if state.seq < known else []
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            faults.append("the entries have a gap")
        if fold(entries[: state.seq]) != state:
            faults.append(f"the fold of {state.seq} facts differs")
        before[0] = state.seq
        return faults

    return look


ACTS: dict[str, Callable[..., Look]] = {
    act.__name__: act
    for act in (
        *(prepare, record_id, claim, claim_and_start, pin, publish, complete, append),
        *(execute, begin, note, carry),
        *(see_names, see_publications, see_latest, see_completions, see_journal, see_check, see_record),
    )
}


def look_until(look: Look, stop: int) -> dict[str, Any]:
    """Look over and over until the writers have ended, and once more."""
    looks = 0
    faults: list[str] = []
    while len(faults) < MOST_FAULTS:
        last = bool(select.select([stop], [], [], 0)[0])
        faults += look()
        looks += 1
        if last:
            break
    return {"looks": looks, "faults": faults[:MOST_FAULTS], "holes": getattr(look, "count", lambda: 0)()}


@contextmanager
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def shut(ends: list[int], which: int) -> None:
    """Close one end of a pipe; end-of-file is what its other end waits for."""
    os.close(ends[which])
    ends[which] = os.open(os.devnull, os.O_RDONLY)


def fork(run: dict[str, Any], ready: list[int], gate: list[int], stop: list[int], reads: bool) -> tuple[int, int]:
    """Start one racer; returns its process id and where its outcome can be read."""
    source, sink = os.pipe()
    process = os.fork()
    if process:
        os.close(sink)
        return process, source
    try:
        for ends in (gate, stop):
            shut(ends, 1)
        try:
            try:
                act = ACTS[run.pop("act")](**run)
            finally:
                os.write(ready[1], b".")
            os.read(gate[0], 1)
            outcome = {"ended": "done", "value": look_until(act, stop[0]) if reads else act()}
        except DispatchError as error:
            outcome = {"ended": type(error).__name__, "value": str(error)}
        with open(sink, "w") as answer:
            json.dump(outcome, answer)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def race(writers: list[dict[str, Any]], readers: list[dict[str, Any]], kills: list[list[float]]) -> dict[str, Any]:
    with pipe() as ready, pipe() as gate, pipe() as stop:
        runs = [fork(run, ready, gate, stop, False) for run in writers]
        looking = [fork(run, ready, gate, stop, True) for run in readers]
        shut(ready, 1)
        waiting = len(runs) + len(looking)
        while waiting and (dots := os.read(ready[0], waiting)):
            waiting -= len(dots)
        shut(gate, 1)
        began = time.monotonic()
        for index, after in sorted(kills, key=lambda each: each[1]):
            time.sleep(max(0.0, began + after - time.monotonic()))
            os.kill(runs[int(index)][0], signal.SIGKILL)
        outcomes = [gather(*run) for run in runs]
        shut(stop, 1)
        return {"writers": outcomes, "readers": [gather(*run) for run in looking]}


def gather(process: int, source: int) -> dict[str, Any]:
    """One racer's outcome, when it has ended."""
    with open(source) as answer:
        text = answer.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return {"ended": "killed", "value": os.WTERMSIG(status)}
    return json.loads(text) if text else {"ended": "crashed", "value": "see its traceback"}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(race(**json.loads(line))) + "\n")
        sys.stdout.flush()
