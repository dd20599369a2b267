"""A record with several supervisors against a list: whoever is behind loses, and everybody reads the same facts."""

from __future__ import annotations

import os
import shutil
import tempfile
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

from prefect_dispatch.errors import Exists, StoreError
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.model.fold import FOLD_VERSION, fold
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor import record as record_module
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from support.full_form import FULL

EXAMPLES = 600 if FULL else 15
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files are made: a disk would add nothing but its time."""
SUPERVISORS = some.integers(0, 2)


class RecordMachine(RuleBasedStateMachine):
    """The model is the list of flow runs that were appended, and how far each supervisor has read."""

    posix = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=IN_MEMORY)
        self.store = PosixStore(Path(self.folder, "digits")) if self.posix else MemoryStore()
        self.store.probe()
        self.facts: list[str] = ["opened"]
        self.read = [0, 0, 0]
        self.records = [self.make() for _ in self.read]

    def make(self) -> Record:
        return Record(self.store, MemoryStore().ledger("open"), "digits", ManualClock())

    @initialize()
    def begin(self) -> None:
        self.records[0].append(plain_opening())
        self.read[0] = 1

    @rule(number=SUPERVISORS)
    def refresh(self, number: int) -> None:
        state = self.records[number].refresh()
        self.read[number] = len(self.facts)
        assert (state.seq, state.carried_by or "opened") == (len(self.facts), self.facts[-1])

    @rule(number=SUPERVISORS, lost_reply=some.booleans())
    def append(self, number: int, lost_reply: bool) -> None:
        # A supervisor that has read nothing yet reads first; one that has read is held to what it knows.
        record, word = self.records[number], f"run-{len(self.facts)}"
        behind = 0 < self.read[number] < len(self.facts)
        create = record._facts.create

        def stored_then_refused(name: str, content: bytes = b"") -> None:
            create(name, content)
            raise Exists(f"{name} exists")

        if lost_reply:
            record._facts.create = stored_then_refused  # type: ignore[method-assign]
        try:
            state = record.append(CarriedBy(flow_run=word))
        except Exists:
            assert behind
        else:
            assert not behind
            self.facts.append(word)
            self.read[number] = len(self.facts)
            assert (state.seq, state.carried_by) == (len(self.facts), word)
        finally:
            record._facts.create = create  # type: ignore[method-assign]

    @rule(number=SUPERVISORS, far=some.integers(1, 3), by_all=some.booleans())
    def reading_fails_on_the_way(self, number: int, far: int, by_all: bool) -> None:
        record = self.records[number]
        read, fails_at = record._facts.read, f"{self.read[number] + far:020d}.json"

        def fail(name: str) -> bytes:
            if name == fails_at:
                raise StoreError("Input/output error")
            return read(name)

        record._facts.read = fail  # type: ignore[method-assign]
        try:
            record.entries() if by_all else record.refresh()
        except StoreError:
            pass
        else:
            if not by_all:
                self.read[number] = len(self.facts)
        finally:
            record._facts.read = read  # type: ignore[method-assign]

    @rule(number=SUPERVISORS)
    def a_supervisor_dies_and_another_takes_its_place(self, number: int) -> None:
        self.records[number] = self.make()
        self.read[number] = 0

    @precondition(lambda self: len(self.facts) >= 4)
    @rule(which=some.integers(0, 3))
    def a_snapshot_is_deleted_or_damaged(self, which: int) -> None:
        snapshots = self.store.ledger(f"fold/{FOLD_VERSION}")
        for name in snapshots.names()[: which % 3]:
            snapshots.remove(name)
            if which == 3:
                snapshots.create(name, b'{"format":1,"state":{"seq":')

    @rule(number=SUPERVISORS)
    def read_all(self, number: int) -> None:
        entries = self.records[number].entries()
        assert [entry.seq for entry in entries] == list(range(1, len(self.facts) + 1))
        assert [entry.fact.flow_run for entry in entries[1:]] == self.facts[1:]

    @invariant()
    def a_newcomer_reads_the_same(self) -> None:
        newcomer = self.make()
        if self.read[0] or len(self.facts) > 1:
            assert newcomer.refresh() == fold(newcomer.entries())
            assert newcomer.refresh().seq == len(self.facts)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


class PosixRecordMachine(RecordMachine):
    posix = True


@pytest.mark.parametrize("machine", [RecordMachine, PosixRecordMachine], ids=["memory", "posix"])
def test_supervisors_of_one_record_agree_with_a_list(machine, monkeypatch):
    monkeypatch.setattr(record_module, "SNAPSHOT_EVERY", 4)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES // 2 if machine.posix else EXAMPLES,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
