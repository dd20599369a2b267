"""A lineage with a shared checkpoint that is held after a preemption, on disk, for tests of whoever answers."""

from __future__ import annotations

from pathlib import Path

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Cessation, Ended, HoldLifted, Submitted, Submitting
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_lineage_root, open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED

OBJECT = ObjectRef(scheduler="scripted", id="7", token="a" * 16)


class HeldLineage:
    """A lineage with a shared checkpoint that is held after a preemption, on disk, and whoever answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = self.record()
        opening = plain_opening(root_visible=True, shared_checkpoint=True)
        record.id()
        record.append(opening.model_copy(update={"root": str(folder), "record_root": str(folder)}))
        self.submit(record, 1)
        self.hold = self.preempt(record, 1)

    def record(self) -> Record:
        return open_record(str(self.folder), "digits", SystemClock())

    def submit(self, record: Record, n: int) -> None:
        now = SystemClock().now()
        token = chr(ord("a") + n - 1) * 16
        record.append(
            Submitting(n=n, token=token, writer="w", give_up_at=now, base="latest", floor=0, restarts_allowed=False)
        )
        record.append(Submitted(n=n, object=OBJECT.model_copy(update={"token": token})))

    def preempt(self, record: Record, n: int) -> str:
        record.append(Ended(n=n, restart=0, cause=Cause.PREEMPTED, nodes=("node1",)))
        hold = record.append(self.step(record).fact).hold
        assert hold is not None
        return hold.opened.hold

    def step(self, record: Record):
        return next_step(record.refresh(), SystemClock().now(), SCRIPTED)

    def ceased(self) -> Record:
        """The site's word, and the lift that follows."""
        record = self.record()
        record.refresh()
        record.append(Cessation(hold=self.hold, object=OBJECT, answer="ceased"))
        record.append(self.step(record).fact)
        return record

    def root(self) -> LineageRoot:
        root = open_lineage_root(str(self.folder), "digits")
        root.prepare(self.record().id(), "digits")
        return root

    def lifts(self) -> list[HoldLifted]:
        return [entry.fact for entry in self.record().entries() if isinstance(entry.fact, HoldLifted)]
