"""The replacement: from the scheduler's "ended" to the next submission, with no delay asked for."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_identity import is_alive
from prefect_dispatch.schedulers.local_records import ObjectFolder, read_record
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, drive
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from rows.line import Line, Target
from rows.lineage import open_record, opened
from rows.setting import Setting

RUN_AGAIN = {"failed": {"action": "resubmit", "budget": 1000, "delay": 0}, "no_progress": 1000}


def measure(setting: Setting) -> list[Line]:
    """Count virtual time at the worst moment, and real time on this machine."""
    return [_in_virtual_time(setting), _on_local(setting)]


class UnluckyScheduler(ScriptedScheduler):
    """Ends each object right after a query that brought nothing new, so that nobody asks again for a whole interval."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock.now, SCRIPTED.model_copy(update={"requeue": False}))
        self.wall = clock
        self.seen_running: set[ObjectRef] = set()
        self.ended_at: list[float] = []
        self.submitted_at: list[float] = []

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        self.submitted_at.append(self.wall.monotonic())
        landed = await super().submit(request)
        self.start(landed)
        return landed

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        seen = await super().observe(objects)
        for reference, observation in seen.items():
            if observation.state is ObjectState.RUNNING and reference in self.seen_running:
                self.end(reference, Cause.PREEMPTED)
                self.ended_at.append(self.wall.monotonic())
            self.seen_running.add(reference)
        return seen


def _in_virtual_time(setting: Setting) -> Line:
    clock = ManualClock()
    scheduler = UnluckyScheduler(clock)
    store = MemoryStore()
    open_record(store, clock).append(opened(scheduler.capabilities, setting.folder))
    count = setting.pairs(20)
    asyncio.run(_run_again(Supervisor(open_record(store, clock), scheduler, None, clock), count))
    interval = scheduler.capabilities.poll_interval.total_seconds()
    waits = [
        (submitted - ended) / interval
        for ended, submitted in zip(scheduler.ended_at, scheduler.submitted_at[1:], strict=False)
    ]
    calls = max(scheduler.submit_calls.values())
    return Line(
        setting.row,
        "ended → replacement's submit, virtual time, worst moment",
        max(waits),
        1.0,
        "intervals",
        max(waits),
        len(waits),
        max(waits),
        Target(1, "intervals"),
        f"the end comes right after a query; {calls} submit call for each submission",
    )


class TimedLocalScheduler(LocalScheduler):
    """Notes when each object's end was written, and when each submit call began and ended; wall clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, slots=1, linger=timedelta(seconds=1))
        self.place = folder
        self.calls: list[tuple[str, float, float]] = []

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        begin = time.time()
        landed = await super().submit(request)
        self.calls.append((request.token, begin, time.time()))
        return landed

    def ended_at(self, token: str) -> float:
        return ObjectFolder(self.place / "objects" / token).exit.stat().st_mtime

    def wait_until_gone(self) -> None:
        """Wait for the launchers, which live a moment longer than what they have launched."""
        for token, _, _ in self.calls:
            folder = ObjectFolder(self.place / "objects" / token)
            process = read_record(folder.process)
            while process is not None and is_alive(process, folder.alive):
                time.sleep(0.01)


def _on_local(setting: Setting) -> Line:
    clock = SystemClock()
    scheduler = TimedLocalScheduler(setting.folder / "state")
    store = PosixStore(setting.folder / "record")
    store.probe()
    open_record(store, clock).append(opened(scheduler.capabilities, setting.folder, recovery=RUN_AGAIN))
    count = setting.pairs(10)
    setting.tell(f"  {count} executions on the local scheduler")
    asyncio.run(_run_again(Supervisor(open_record(store, clock), scheduler, None, clock), count))
    scheduler.wait_until_gone()
    waits = [
        after[2] - scheduler.ended_at(before[0])
        for before, after in zip(scheduler.calls, scheduler.calls[1:], strict=False)
    ]
    submit = statistics.median(end - begin for _, begin, end in scheduler.calls)
    allowed = scheduler.capabilities.poll_interval.total_seconds() + submit
    return Line(
        setting.row,
        "ended → replacement submitted, local scheduler, real time",
        statistics.median(waits),
        allowed,
        "s",
        statistics.median(waits) / allowed,
        len(waits),
        statistics.median(waits) / allowed,
        Target(1, "×"),
        f"bare: 1 poll interval + 1 submit call ({submit * 1e3:.0f} ms); the worst was {max(waits):.2f} s",
    )


async def _run_again(supervisor: Supervisor, replacements: int) -> None:
    """Drive a lineage through so many replacements, to the end of the last one."""
    for _ in range(replacements + 1):
        happening = await drive(supervisor, carrier=None, after_each=_nothing)
        assert isinstance(happening, ExecutionOver), happening


async def _nothing(advanced: object) -> None:
    """Drive reports each advance; nobody listens here."""
