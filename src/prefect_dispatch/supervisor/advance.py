"""Advance: read, fold, next step, do it, append. The only place that does so; every caller may die at any moment."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.errors import Exists, SchedulerError, StoreError, StoreUnreachable
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.facts import Entry, Fact
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import (
    Append,
    Done,
    Finish,
    ForbidRestarts,
    GiveUp,
    Held,
    NotOpened,
    Overtaken,
    Poll,
    Requeue,
    Retire,
    Step,
    Submit,
)
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.collecting import collected, raise_all
from prefect_dispatch.supervisor.finishing import Finisher, RootAway
from prefect_dispatch.supervisor.observing import Observer
from prefect_dispatch.supervisor.own_time import OwnTime
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.supervisor.stopping import Stopper, notice_for
from prefect_dispatch.supervisor.submitting import Submitter
from prefect_dispatch.supervisor.trouble import Tell, Trouble

_ASKS_NOBODY = (Append, Finish, Done, NotOpened)
"""After these steps nothing more is known of the scheduler."""
_log = logging.getLogger(__name__)


def warn(trouble: str) -> None:
    """Write what is wrong with a record into the log."""
    _log.warning("%s", trouble, extra={"action": "record.trouble"})


def _warn_of_root(trouble: str) -> None:
    _log.warning("%s", trouble, extra={"action": "root.trouble"})


def _warn_of_scheduler(trouble: str) -> None:
    _log.warning("%s", trouble, extra={"action": "scheduler.trouble"})


@dataclass(frozen=True)
class Advanced:
    """What one call of :meth:`Supervisor.advance` came to.

    Attributes:
        state: the lineage after it.
        step: what was due.
        moved: whether the record has moved; if so, call again at once, else after the polling interval or at
            ``wake_at``, whichever comes first.
        wake_at: when something becomes due by the clock alone.
        trouble: why the scheduler's answer, the record or the root could not be used; empty if they could.
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
        generation: the one that scheduler and root are those of; once a newer one is open, nothing is done for the
            lineage but what its own calls owe. None where they are those of every generation.
    """

    def __init__(
        self,
        record: Record,
        scheduler: Scheduler,
        root: RootView | None,
        clock: Clock,
        reports: ReportsView | None = None,
        generation: int | None = None,
    ) -> None:
        self._access = Access(record, scheduler, root, clock, OwnTime(clock), reports)
        self._observer = Observer(self._access)
        self._stopper = Stopper(self._access, self._observer)
        self._submitter = Submitter(self._access, self._stopper)
        self._finisher = Finisher(self._access)
        self._generation = generation
        self._last: LineageState | None = record.last
        self._could_read = True
        self._record_trouble = Trouble(record.lineage)
        self._ends_behind: int | None = None
        self._scheduler_trouble = Trouble(record.lineage)
        self._root_trouble = Trouble(record.lineage)

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

    async def read(self, tell: Tell = warn) -> LineageState:
        """Read the record and fold it, without taking a step; a record that has gone away is waited for.

        Args:
            tell: told once of a record that cannot be used, again where the reason changes, and when it is over.

        Raises:
            StoreUnreachable: the record could never be read.
            StoreError: likewise.
        """
        while True:
            try:
                return await self._refresh(tell)
            except (StoreError, StoreUnreachable) as error:
                await self._wait_until_back(error, tell)

    async def settle_index(self) -> None:
        """Have the index of open lineages say of this one what was read: by it, others find what nobody carries."""
        await asyncio.to_thread(self._access.record.settle_index)

    async def entries(self) -> list[Entry]:
        """Read the whole record."""
        return await asyncio.to_thread(self._access.record.entries)

    def due(self, state: LineageState) -> Step:
        """What is due for a state that was read, by this process's own time."""
        return self._due(self._access.time.of(state))

    def _due(self, state: LineageState) -> Step:
        """What is due for a state in this process's own time. A step's submissions are those of that very state."""
        if self._generation is not None and state.generation > self._generation:
            return Overtaken(generation=state.generation)
        return next_step(state, self._access.time.now(), self.capabilities)

    async def advance(self) -> Advanced:
        """Take the one step that is due.

        Raises:
            ReadOnlyLineage: the record holds what this version does not know; nothing was done.
            MalformedError: the record is damaged; the text names where.
            StoreUnreachable: the record could never be read; later, that is a trouble to wait out.
            StoreError: likewise.
        """
        try:
            return await self._advance()
        except (StoreError, StoreUnreachable) as error:
            if self._last is None:
                raise
            self._note_trouble(error, warn)
            return Advanced(self._last, Poll(why="the record to be reachable"), False, None, str(error))

    async def _advance(self) -> Advanced:
        before = await self._refresh()
        self._access.record.require_writable()
        own = self._access.time
        state = own.of(before)
        step = self._due(state)
        trouble = away = ""
        try:
            await self._do(state, step)
            await self._submitter.settle_calls()
        except Exists:
            _log.debug("%s: another supervisor was faster", self.lineage, extra={"action": "append.lost"})
        except RootAway as why:
            away = str(why)
        except SchedulerError as error:
            trouble = str(error)
        self._root_trouble.note(away, _warn_of_root)
        if trouble or not isinstance(step, _ASKS_NOBODY):
            self._scheduler_trouble.note(trouble, _warn_of_scheduler)
        after = await self._refresh()
        wake_at = own.wall(step.wake_at) if isinstance(step, Poll) and step.wake_at is not None else None
        return Advanced(after, step, after.seq > before.seq, wake_at, trouble or away)

    async def _refresh(self, tell: Tell = warn) -> LineageState:
        self._could_read = False
        self._last = await self._access.refresh()
        self._could_read = True
        # What can be read may still take no facts: that is over when somebody has appended one.
        if self._ends_behind is None or self._last.seq > self._ends_behind:
            self._record_trouble.end(tell)
        return self._last

    def _note_trouble(self, error: StoreError | StoreUnreachable, tell: Tell) -> None:
        self._ends_behind = self._last.seq if self._could_read and self._last is not None else None
        self._record_trouble.note(str(error), tell)

    async def _wait_until_back(self, error: StoreError | StoreUnreachable, tell: Tell) -> None:
        """A record that cannot be used for a while stops nothing: the job goes on, and so do we when it can."""
        if self._last is None:
            raise error
        self._note_trouble(error, tell)
        await self.clock.sleep(self.capabilities.poll_interval.total_seconds())

    async def append(self, fact: Fact, tell: Tell = warn) -> LineageState:
        """Append a fact of this process's own, to its own generation, that holds whatever was appended meanwhile.

        A record that has gone away is waited for. If a store failed so that nobody knows whether the fact is there, it
        may be appended twice.

        Args:
            fact: the fact.
            tell: told once of a record that cannot be used, again where the reason changes, and when it is over.

        Raises:
            StoreUnreachable: the record could never be read.
            StoreError: likewise.
        """
        while True:
            try:
                await self._access.append(fact, self._generation)
                return await self._refresh(tell)
            except Exists:
                await self.read(tell)
            except (StoreError, StoreUnreachable) as error:
                await self._wait_until_back(error, tell)
                await self.read(tell)

    async def _do(self, state: LineageState, step: Step) -> None:
        match step:
            case Submit():
                await self._submitter.submit(state, step)
            case Requeue():
                await self._submitter.requeue(state, step)
            case ForbidRestarts():
                await self._stopper.forbid_restarts(state, step.submission)
            case Retire():
                await self._stopper.retire(state, step.submission)
            case GiveUp():
                await self._stopper.give_up(state, step.submission)
            case Poll():
                await self._poll(state, step)
            case Held():
                if step.settle is not None:
                    await self._poll(state, step.settle)
            case Append():
                await self._access.append(step.fact, step.generation)
            case Finish():
                await self._finisher.finish(state, step)
            case Done():
                await self.settle_index()
            case Overtaken() | NotOpened():
                pass

    async def _poll(self, state: LineageState, step: Poll) -> None:
        """Stop, find and observe, each on its own: what cannot be told of one hides nothing of the others."""
        troubles: list[SchedulerError] = []
        for submission in step.stop:
            with collected(troubles):
                await self._stopper.ask_to_stop(submission, notice_for(state, submission))
        for submission in step.find:
            with collected(troubles):
                await self._observer.find(state, submission, submission in (*step.needs, state.newest))
        for submission in step.retire:
            with collected(troubles):
                await self._stopper.retire(state, submission)
        with collected(troubles):
            await self._observer.observe(state, step.observe)
        with collected(troubles):
            await self._observer.hold_if_unknown(state, step.needs)
        raise_all(troubles)
