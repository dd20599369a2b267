"""Advance: read, fold, next step, do it, append. The only place that does so; every caller may die at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.errors import Exists, SchedulerError, StoreError, StoreUnreachable
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.facts import Entry, Fact, Finished, Opened
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import (
    Append,
    Done,
    Finish,
    ForbidRestarts,
    Held,
    NotOpened,
    Poll,
    Requeue,
    Retire,
    Step,
    Submit,
)
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.observing import Observer
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.supervisor.stopping import Stopper, notice_for
from prefect_dispatch.supervisor.submitting import Submitter

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Advanced:
    """What one call of :meth:`Supervisor.advance` came to.

    Attributes:
        state: the lineage after it.
        step: what was due.
        moved: whether the record has moved; if so, call again at once, else after the polling interval or at
            ``wake_at``, whichever comes first.
        wake_at: when something becomes due by the clock alone.
        trouble: why the scheduler's answer or the record could not be used; empty if they could.
    """

    state: LineageState
    step: Step
    moved: bool
    wake_at: datetime | None = None
    trouble: str = ""


class Supervisor:
    """One process's hand on one lineage. Any number of them may act for the same lineage at once.

    Args:
        record: the lineage's record.
        scheduler: the scheduler that its objects live in.
        root: the lineage's checkpoint root; None where this process cannot reach it.
        clock: the clock.
        reports: what helpers left beside the record, for where the root cannot tell.
    """

    def __init__(
        self,
        record: Record,
        scheduler: Scheduler,
        root: RootView | None,
        clock: Clock,
        reports: ReportsView | None = None,
    ) -> None:
        self._access = Access(record, scheduler, root, clock, reports)
        self._observer = Observer(self._access)
        self._stopper = Stopper(self._access, self._observer)
        self._submitter = Submitter(self._access, self._stopper)
        self._delayed_since: dict[datetime, float] = {}
        self._last: LineageState | None = None

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return self._access.lineage

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that its objects live in."""
        return self._access.scheduler

    @property
    def root(self) -> RootView | None:
        """The lineage's checkpoint root; None where this process cannot reach it."""
        return self._access.root

    @property
    def clock(self) -> Clock:
        """The clock that it goes by."""
        return self._access.clock

    @property
    def capabilities(self) -> Capabilities:
        """What its scheduler can do."""
        return self._access.scheduler.capabilities

    @property
    def owes(self) -> bool:
        """Whether something may run by a late call of this process's own that nobody else looks for any more."""
        return self._submitter.owes

    async def read(self) -> LineageState:
        """Read the record and fold it, without taking a step."""
        self._last = await self._access.refresh()
        return self._last

    async def entries(self) -> list[Entry]:
        """Read the whole record."""
        return await asyncio.to_thread(self._access.record.entries)

    async def advance(self) -> Advanced:
        """Take the one step that is due.

        Raises:
            ReadOnlyLineage: the record holds what this version does not know; nothing was done.
            MalformedError: the record is damaged; the text names where.
            StoreUnreachable: the record could never be read; later, that is a trouble to wait out.
            StoreError: likewise.
        """
        try:
            state = await self._access.refresh()
        except (StoreError, StoreUnreachable) as error:
            return self._wait_for_record(error)
        self._access.record.require_writable()
        step = next_step(state, self._time_for(state), self._access.scheduler.capabilities)
        trouble = ""
        try:
            try:
                await self._do(state, step)
                await self._submitter.settle_calls()
            except Exists:
                _log.debug("%s: another supervisor was faster", self.lineage, extra={"action": "append.lost"})
            except SchedulerError as error:
                trouble = str(error)
                _log.warning("%s: %s", self.lineage, error, extra={"action": "scheduler.trouble"})
            after = await self._access.refresh()
        except (StoreError, StoreUnreachable) as error:
            return self._wait_for_record(error)
        self._last = after
        wake_at = step.wake_at if isinstance(step, Poll) else None
        return Advanced(after, step, after.seq > state.seq, wake_at, trouble)

    def _wait_for_record(self, error: StoreError | StoreUnreachable) -> Advanced:
        """A record that cannot be reached for a while stops nothing: the job goes on, and so do we when it is back."""
        if self._last is None:
            raise error
        _log.warning("%s: %s", self.lineage, error, extra={"action": "record.trouble"})
        return Advanced(self._last, Poll(why="the record to be reachable"), False, None, str(error))

    def _time_for(self, state: LineageState) -> datetime:
        """The wall clock; or the end of a delay that this process has waited for by its own monotonic clock.

        Whoever recorded the end may have had a clock that was ahead, and a delay is never longer than its rule says.
        """
        now = self._access.clock.now()
        if state.not_before is None or now >= state.not_before:
            return now
        elapsed = self._access.clock.monotonic()
        since = self._delayed_since.setdefault(state.not_before, elapsed)
        return state.not_before if elapsed - since >= state.delay.total_seconds() else now

    async def append(self, fact: Fact) -> LineageState:
        """Append a fact of this process's own that holds whatever was appended meanwhile."""
        while True:
            try:
                return await self._access.append(fact)
            except Exists:
                await self._access.refresh()

    async def _do(self, state: LineageState, step: Step) -> None:
        opened = state.opened
        if opened is None:
            return
        match step:
            case Submit():
                await self._submitter.submit(state, step)
            case Requeue():
                await self._submitter.requeue(opened, step)
            case ForbidRestarts():
                await self._stopper.forbid_restarts(opened, step.submission)
            case Retire():
                await self._stopper.retire(opened, step.submission)
            case Poll():
                await self._poll(opened, state, step)
            case Held():
                if step.settle is not None:
                    await self._poll(opened, state, step.settle)
            case Append():
                await self._access.append(step.fact, step.generation)
            case Finish():
                await self._finish(state, step)
            case Done():
                await asyncio.to_thread(self._access.record.settle_index)
            case NotOpened():
                pass

    async def _poll(self, opened: Opened, state: LineageState, step: Poll) -> None:
        """Stop, find and observe, each on its own: what cannot be told of one hides nothing of the others."""
        troubles: list[SchedulerError] = []
        for submission in step.stop:
            with _collected(troubles):
                await self._stopper.ask_to_stop(submission, notice_for(state, submission))
        for submission in step.find:
            with _collected(troubles):
                await self._observer.find(state, submission)
        with _collected(troubles):
            await self._observer.observe(opened, step.observe)
        if troubles:
            raise SchedulerError("; ".join(dict.fromkeys(str(trouble) for trouble in troubles)))

    async def _finish(self, state: LineageState, step: Finish) -> None:
        final = None
        if self._access.root is not None:
            final = await asyncio.to_thread(self._access.root.final_save, state.generation)
        await self._access.append(
            Finished(
                outcome=step.outcome,
                detail=step.detail,
                final_save=final.publication if final else None,
                produced_by=final.produced_by if final else None,
                resumed_from=final.resumed_from if final else None,
            )
        )


@contextlib.contextmanager
def _collected(troubles: list[SchedulerError]) -> Iterator[None]:
    try:
        yield
    except SchedulerError as error:
        troubles.append(error)
