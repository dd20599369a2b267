"""Seeing to what a person asked for, beside other lineages: a store that is slow holds none of them up."""

from __future__ import annotations

import asyncio
import threading

from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.ending import see_to_it
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from support.held_lineage import HeldLineage


class SlowRecord(Record):
    """One whose store answers when others have gone on."""

    others_went_on = threading.Event()

    def refresh(self) -> LineageState:
        assert self.others_went_on.wait(20), "the record was read where everything else waits for it"
        return super().refresh()


def test_others_go_on_while_a_record_is_read(tmp_path):
    # given
    record = HeldLineage(tmp_path).record()
    record.__class__ = SlowRecord

    async def both() -> LineageState:
        async def others() -> None:
            SlowRecord.others_went_on.set()

        state, _ = await asyncio.gather(see_to_it(record, ManualClock(), 1.0), others())
        return state

    # when, then
    assert asyncio.run(both()).hold is not None
