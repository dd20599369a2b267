"""How many requests a save, a poll and an idle job cost, as a proxy counts them and docs/s3.md says."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3_accesses import use_access
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.beats import BEAT_EVERY, Heart
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.s3 import faults
from support.s3.begun import begin
from support.s3.messages import Operation
from support.s3.proxy import FaultProxy
from support.s3.runs import NEVER
from support.waiting import until

HOUR = timedelta(hours=1)


@contextmanager
def costs(proxy: FaultProxy, **expected: int) -> Iterator[None]:
    """Compare the requests of the block, by what they ask for, with what it should cost."""
    before = len(proxy.seen)
    yield
    assert dict(Counter(request.operation.name for request in proxy.seen[before:])) == expected


def test_a_save_costs_what_the_page_says(place: Any, tmp_path: Path) -> None:
    # given an execution, and a save of three files
    root = LineageRoot(ManagedStore(place.store, str(tmp_path / "workplace")))
    epoch, attempt = begin(root)
    save = Path(root.absolute(f"exec/{attempt}/save"))
    save.mkdir(parents=True)
    for number in range(3):
        (save / f"part-{number}").write_bytes(b"w" * 1000)
    # when / then
    with costs(place.proxy, PUT=5, LIST=2):
        root.publish(epoch, attempt, f"exec/{attempt}/save", 1)
    # and of a file to which the server gives a tag that is not one of its bytes, these are asked for
    for operation in (Operation.PUT, Operation.HEAD):
        place.proxy.arm(faults.tag_of_its_own, operation, key="one", times=None)
    Path(root.absolute(f"exec/{attempt}/one")).write_bytes(b"w" * 1000)
    with costs(place.proxy, PUT=3, HEAD=1, GET=1, LIST=2):
        root.publish(epoch, attempt, f"exec/{attempt}/one", 2)


def test_an_idle_job_asks_for_nothing_and_its_supervisor_for_what_the_page_says(place: Any) -> None:
    # given a supervisor whose object runs
    clock = ManualClock()
    scheduler = ScriptedScheduler(clock.now, SCRIPTED)
    record = Record(place.store, place.store.ledger(".dispatch/open"), "digits", clock)
    record.append(plain_opening(SCRIPTED, root_visible=False))
    supervisor = Supervisor(record, scheduler, None, clock)

    def is_quiet() -> bool:
        advanced = asyncio.run(supervisor.advance())
        for object in scheduler.objects():
            if object.state is ObjectState.QUEUED:
                scheduler.start(object.ref)
        clock.turn(timedelta(seconds=1))
        return not advanced.moved and any(object.state is ObjectState.RUNNING for object in scheduler.objects())

    until(is_quiet)
    assert is_quiet()
    # when it polls and nothing has changed, then that costs what the page says
    with costs(place.proxy, GET=4):
        asyncio.run(supervisor.advance())
    # and so does an hour of its signs of life
    use_access(place.direct.url, place.access)
    heart = Heart(place.direct.url, "digits", "process-1", clock)
    heart.beat()
    beats = HOUR // BEAT_EVERY
    with costs(place.proxy, PUT=beats, DELETE_MANY=beats):
        for _ in range(int(HOUR.total_seconds())):
            clock.turn(timedelta(seconds=1))
            heart.beat()


def test_a_look_at_the_progress_costs_the_same_however_much_was_told(place: Any) -> None:
    # given an execution whose program has told its progress many times
    root = LineageRoot(place.honest)
    _, attempt = begin(root)
    journal = root.journal(attempt)
    for percent in range(20):
        journal.append(JournalKind.PROGRESS.value, percent=percent)
    view = RootView(LineageRoot(place.store))
    told = view.progress(attempt)
    assert told is not None and told.percent == 19
    # when nothing is new, then it costs two requests
    with costs(place.proxy, GET=1, LIST=1):
        assert view.progress(attempt) == told


def test_a_wrapper_whose_program_is_silent_asks_for_nothing(runs: Any) -> None:
    # given a run whose program has saved once, and then waits; its wrapper looks for saves twenty times a second
    process = runs.start(1, until=1, gate=NEVER)
    until(lambda: runs.steps() and process.poll() is None)
    settled = 0

    def is_silent() -> bool:
        nonlocal settled
        before, settled = settled, len(runs.proxy.seen)
        time.sleep(0.5)
        return before == settled == len(runs.proxy.seen)

    until(is_silent)
    # when it goes on so for a while, then nothing at all is asked for
    with costs(runs.proxy):
        time.sleep(2)
    runs.kill(process)
