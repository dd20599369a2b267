"""A lineage's root with several executions against a small model of what it promises.

Executions begin, save, publish, publish again, write over, truncate, rotate, bar, note parts and die between two steps,
in any order; after each step the listings, the resume point, the finished parts and the check are those of the model.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from prefect_dispatch.errors import (
    Barred,
    DuplicateExecution,
    Exists,
    NotDurable,
    StoreError,
    Unpublishable,
    UnusableCheckpoint,
)
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import SHORT_BYTES
from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import LATEST, SCRATCH, ResumeChoice
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from support.full_form import FULL
from support.root_faults import faults_of

EXAMPLES = 1000 if FULL else 25
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files are made: a disk would add nothing but its time."""
FILES = ("model.bin", "optimizer.bin")
Bytes = tuple[bytes, ...]

executions = some.integers(0, 3)
names = some.sampled_from(["a", "b", "last"])
steps = some.sampled_from([1, 9, 10, 100])
keys = some.sampled_from(["1", "part-2", "é"])


def alike(now: bytes, listed: bytes) -> bool:
    """Whether a manifest takes one content of a file for another, whatever its time: it knows short ones by digest."""
    return len(now) == len(listed) and (len(now) > SHORT_BYTES or now == listed)


@dataclass
class Save:
    """What lies at one path: each file's content and when it was written; missing files are left out."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)


@dataclass
class Run:
    """What the model knows of one execution."""

    epoch: Epoch
    attempt: str
    steps: dict[str, int] = field(default_factory=dict)
    barred: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    pin: tuple[Publication | None, Bytes] | None = None
    done: dict[str, tuple[str, int]] = field(default_factory=dict)


class RootMachine(RuleBasedStateMachine):
    posix = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=IN_MEMORY)
        self.store = PosixStore(Path(self.folder, "root")) if self.posix else MemoryStore()
        self.root = LineageRoot(self.store)
        self.root.prepare("record-1", "digits")
        self.clock = 1_700_000_000
        self.saves: dict[str, Save] = {}
        self.runs: list[Run] = []
        self.published: set[Publication] = set()
        self.manifests: dict[Publication, list[dict[str, tuple[bytes, int]]]] = {}
        self.pruned: set[Publication] = set()

    # The program's hands, and the model's eyes.

    def write(self, path: str, name: str, content: bytes) -> None:
        if isinstance(self.store, MemoryStore):
            self.store.write(f"{path}/{name}", content)
        else:
            place = Path(self.store.location, path, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            os.utime(place, (self.clock, self.clock))
        self.saves.setdefault(path, Save()).files[name] = (content, self.clock)
        self.clock += 1

    def holds(self, publication: Publication, now: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]] | None:
        """The manifest of a publication that what lies there fits."""
        for listed in self.manifests[publication]:
            fits = all(name in now and alike(now[name][0], content) for name, (content, _) in listed.items())
            anew = [name for name, (_, at) in listed.items() if name in now and now[name][1] != at]
            if fits and len(anew) in (0, len(listed)):
                return listed
        return None

    def owner(self, publication: Publication) -> Run:
        return next(run for run in self.runs if run.epoch == publication.epoch)

    def expected(self, choice: ResumeChoice, below: Epoch | None) -> Publication | None:
        """The resume point that the design promises.

        Raises:
            UnusableCheckpoint: it promises a refusal.
        """
        listed = [each for each in self.published if below is None or each.epoch < below]
        above = [each for each in listed if each.epoch.number >= choice.floor]
        if isinstance(choice.base, Publication):
            candidates = above or [choice.base]
        else:
            candidates = above or ([] if choice.base == SCRATCH else listed)
        for each in sorted(candidates, key=lambda p: (p.epoch, p.step, p.path.encode()), reverse=True):
            late = below is not None and each.epoch >= below
            barred = late or each.path in self.owner(each).barred
            save = self.saves.get(each.path, Save())
            if each not in self.pruned and not barred and self.holds(each, save.files) is not None:
                return each
        if candidates:
            raise UnusableCheckpoint("the model says so")
        return None

    @contextmanager
    def dying(self, call: str, folder: str, error: Exception) -> Iterator[None]:
        """Let one call of the store fail, in one ledger where a folder is named."""
        real = getattr(self.store, call)

        def fail(*arguments):
            raise error

        def ledger(asked: str):
            found = real(asked)
            if asked == folder:
                found.create = fail
            return found

        setattr(self.store, call, ledger if folder else fail)
        try:
            yield
        finally:
            setattr(self.store, call, real)

    # What executions do.

    @initialize()
    def begin_three(self) -> None:
        for generation, submission in ((0, 1), (0, 2), (1, 1)):
            self.begin(generation, submission, 0)

    @rule(generation=some.integers(0, 1), submission=some.integers(1, 4), restart=some.integers(0, 1))
    def begin(self, generation: int, submission: int, restart: int) -> None:
        epoch = Epoch(generation, submission, restart)
        # Made from the clock, since hypothesis must find the same order of paths when it replays an example.
        attempt = attempt_of(base64.b32encode(b"%010d" % self.clock).decode().lower(), restart)
        self.clock += 1
        later = [run for run in self.runs if run.epoch >= epoch and run.epoch.generation <= generation]
        try:
            self.root.claim(epoch, attempt, "record-1", "run-1")
        except DuplicateExecution:
            assert later
            return
        assert not later
        self.root.start(epoch, attempt, {})
        self.runs.append(Run(epoch, attempt))

    @precondition(lambda self: self.runs)
    @rule(who=executions, name=names, step=steps, size=some.sampled_from([4, 10]))
    def save(self, who: int, name: str, step: int, size: int) -> None:
        run = self.runs[who % len(self.runs)]
        path = f"exec/{run.attempt}/{name}"
        for file in FILES:
            # Longer than what is listed with a digest: sizes and times decide here.
            self.write(path, file, b"%080d" % self.clock if size > 5 else b"%074d" % self.clock)
        self.publish_path(run, path, step)

    @precondition(lambda self: self.saves)
    @rule(which=some.integers(0, 9), step=steps, same=some.booleans())
    def publish_again(self, which: int, step: int, same: bool) -> None:
        path = sorted(self.saves)[which % len(self.saves)]
        run = next(run for run in self.runs if run.attempt == path.split("/")[1])
        if path.startswith("exec/") and self.saves[path].files:
            self.publish_path(run, path, run.steps.get(path, step) if same else step)

    def publish_path(self, run: Run, path: str, step: int) -> None:
        publication = Publication(run.epoch, step, path)
        try:
            assert self.root.publish(run.epoch, run.attempt, path, step) == publication
        except Barred:
            assert path in run.barred
        except Unpublishable:
            assert run.steps.get(path, step) != step
        else:
            assert path not in run.barred
            assert run.steps.setdefault(path, step) == step
            self.published.add(publication)
            self.manifests.setdefault(publication, []).append(dict(self.saves[path].files))

    @precondition(lambda self: self.saves)
    @rule(which=some.integers(0, 9), step=steps)
    def publish_a_snapshot(self, which: int, step: int) -> None:
        path = sorted(self.saves)[which % len(self.saves)]
        run = next(run for run in self.runs if run.attempt == path.split("/")[1])
        if path.startswith("exec/") and self.saves[path].files:
            publication = self.root.publish(run.epoch, run.attempt, path, step, snapshot=True)
            assert publication not in self.published
            self.saves[publication.path] = Save(dict(self.saves[path].files))
            self.published.add(publication)
            self.manifests[publication] = [dict(self.saves[path].files)]

    @precondition(lambda self: self.runs)
    @rule(
        who=executions,
        name=names,
        step=steps,
        where=some.sampled_from(["sync", "saves", "pub"]),
        durable=some.booleans(),
    )
    def publishing_fails_on_the_way(self, who: int, name: str, step: int, where: str, durable: bool) -> None:
        run = self.runs[who % len(self.runs)]
        path = f"exec/{run.attempt}/{name}"
        publication = Publication(run.epoch, run.steps.get(path, step), path)
        for file in FILES:
            self.write(path, file, b"fresh")
        error = StoreError("No space left on device") if durable else NotDurable("Input/output error")
        folder = {"sync": "", "saves": f"meta/{run.attempt}/saves", "pub": "pub"}[where]
        with self.dying("ledger" if folder else "sync", folder, error), pytest.raises((StoreError, Barred)):
            self.root.publish(run.epoch, run.attempt, path, publication.step)
        if path in run.barred:
            return
        if where == "pub":
            self.manifests.setdefault(publication, []).append(dict(self.saves[path].files))
        if not durable:
            run.barred.add(path)
            run.notes.append("barred")

    @precondition(lambda self: self.saves)
    @rule(which=some.integers(0, 9), file=some.sampled_from(FILES), content=some.sampled_from([b"", b"abc", b"abcde"]))
    def write_over_one_file(self, which: int, file: str, content: bytes) -> None:
        path = sorted(self.saves)[which % len(self.saves)]
        if path.startswith("exec/"):
            self.write(path, file, content)

    @precondition(lambda self: self.saves)
    @rule(which=some.integers(0, 9))
    def rotate(self, which: int) -> None:
        path = sorted(self.saves)[which % len(self.saves)]
        if path.startswith("exec/"):
            if isinstance(self.store, MemoryStore):
                self.store.delete(path)
            else:
                shutil.rmtree(Path(self.store.location, path), ignore_errors=True)
            self.saves[path] = Save()

    @precondition(lambda self: self.published)
    @rule(which=some.integers(0, 9))
    def prune(self, which: int) -> None:
        publication = sorted(self.published, key=lambda each: each.order)[which % len(self.published)]
        if publication not in self.pruned:
            self.store.ledger("pruned").create(publication.name)
            self.pruned.add(publication)

    @precondition(lambda self: self.runs)
    @rule(who=executions, data=some.data())
    def pin(self, who: int, data) -> None:
        run = self.runs[who % len(self.runs)]
        choice = self.choices(data)
        if run.pin is None:
            try:
                promised = self.expected(choice, run.epoch)
            except UnusableCheckpoint:
                with pytest.raises(UnusableCheckpoint):
                    self.root.pin(run.epoch, run.attempt, choice)
                return
            content = self.saves[promised.path].files if promised else {}
            run.pin = (promised, tuple(content[name][0] for name in FILES if name in content))
        pin = self.root.pin(run.epoch, run.attempt, choice)
        assert (pin.publication, self.imported(pin.path)) == run.pin

    def imported(self, path: str | None) -> Bytes:
        if path is None:
            return ()
        listed = {file.path for file in self.store.files(path)}
        return tuple(self.store.ledger(path).read(name) for name in FILES if name in listed)

    @precondition(lambda self: self.runs)
    @rule(who=executions, key=keys, retried=some.booleans())
    def complete(self, who: int, key: str, retried: bool) -> None:
        run = self.runs[who % len(self.runs)]
        nonce, result = run.done.get(key, ("", 0)) if retried else ("", self.clock)
        nonce = nonce or f"{self.clock:016x}"
        self.clock += 1
        try:
            self.root.complete(run.epoch, run.attempt, key, {"n": result}, nonce)
        except Exists:
            assert key in run.done and run.done[key] != (nonce, result)
        else:
            assert run.done.setdefault(key, (nonce, result)) == (nonce, result)

    @precondition(lambda self: self.runs)
    @rule(who=executions)
    def note(self, who: int) -> None:
        run = self.runs[who % len(self.runs)]
        assert self.root.journal(run.attempt).append("status", text="x").seq == len(run.notes) + 1
        run.notes.append("status")

    # What must hold after each step.

    def choices(self, data) -> ResumeChoice:
        bases = [LATEST, SCRATCH, *sorted(self.published, key=lambda each: each.order)]
        floors = [0, *(run.epoch.number for run in self.runs)]
        return ResumeChoice(data.draw(some.sampled_from(bases)), data.draw(some.sampled_from(floors)))

    @rule(data=some.data())
    def any_choice_is_answered_as_promised(self, data) -> None:
        choice = self.choices(data)
        below = data.draw(some.sampled_from([None, *(run.epoch for run in self.runs)]))
        self.compare_latest(choice, below)
        counting: dict[str, Epoch] = {}
        for run in sorted(self.runs, key=lambda each: each.epoch):
            base = isinstance(choice.base, Publication) and run.epoch <= choice.base.epoch
            if (run.epoch.number >= choice.floor or base) and (below is None or run.epoch < below):
                counting.update(dict.fromkeys(run.done, run.epoch))
        found = self.root.completions(choice, below)
        assert ({key: entry.epoch for key, entry in found.parts.items()}, found.passed_over) == (counting, ())
        for key, entry in found.parts.items():
            run = next(run for run in self.runs if run.epoch == entry.epoch)
            part = self.root.finished_part(entry)
            assert (part.attempt, part.nonce, part.result["n"]) == (run.attempt, *run.done[key])

    def compare_latest(self, choice: ResumeChoice, below: Epoch | None) -> None:
        try:
            promised = self.expected(choice, below)
        except UnusableCheckpoint:
            with pytest.raises(UnusableCheckpoint):
                self.root.latest(choice, below)
            return
        assert self.root.latest(choice, below).publication == promised

    @invariant()
    def the_root_is_as_the_model_says(self) -> None:
        assert self.root.publications() == sorted(self.published, key=lambda p: (p.epoch, p.step, p.path.encode()))
        self.compare_latest(ResumeChoice(), None)
        assert faults_of(self.root) == []
        for run in self.runs:
            entries = self.root.journal(run.attempt).entries()
            assert [(entry.seq, entry.kind) for entry in entries] == list(enumerate(run.notes, 1))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


class PosixRootMachine(RootMachine):
    posix = True


@pytest.mark.parametrize("machine", [RootMachine, PosixRootMachine], ids=["memory", "posix"])
def test_executions_of_one_root_agree_with_a_model(machine):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES // 2 if machine.posix else EXAMPLES,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
