"""Advance: read, fold, next step, do it, append. The only place that does so; every caller may die at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prefect_dispatch.errors import Ambiguous, Exists, SchedulerError, StoreError, StoreUnreachable, SubmitRefused
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.classify import cause_of
from prefect_dispatch.model.facts import (
    Abandoned,
    Ended,
    Entry,
    Fact,
    Finished,
    Observed,
    Opened,
    Requeueing,
    RestartsForbidden,
    Retired,
    Retiring,
    Submitted,
    Submitting,
)
from prefect_dispatch.model.facts import (
    SubmitRefused as SubmitRefusedFact,
)
from prefect_dispatch.model.next_step import ambiguous_hold, next_step, pending_too_long
from prefect_dispatch.model.observation import EndedRestart, ObjectRef, ObjectState
from prefect_dispatch.model.observing import news, vanished
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
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
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.own_call import OwnCall, is_unwanted
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.request import request_of, secrets_of
from prefect_dispatch.supervisor.root_view import RootView

STOP_AGAIN_AFTER = timedelta(seconds=30)
"""How long after a stop was asked for it is asked for again, by the same process."""

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


@dataclass
class _Memory:
    """What this process alone knows, by its own monotonic clock. Losing it costs a wait, never a wrong step."""

    absent_since: dict[ObjectRef, float] = field(default_factory=dict)
    stop_asked: dict[ObjectRef, float] = field(default_factory=dict)
    delayed_since: dict[datetime, float] = field(default_factory=dict)
    calls: list[OwnCall] = field(default_factory=list)


class Supervisor:
    """One process's hand on one lineage. Any number of them may act for the same lineage at once.

    Args:
        record: the lineage's record.
        scheduler: the scheduler that its objects live in.
        root: the lineage's checkpoint root; None where this process cannot reach it.
        clock: the clock.
        reports: what helpers left beside the record, for where the root cannot be reached.
    """

    def __init__(
        self,
        record: Record,
        scheduler: Scheduler,
        root: RootView | None,
        clock: Clock,
        reports: ReportsView | None = None,
    ) -> None:
        self._record = record
        self._scheduler = scheduler
        self._root = root
        self._clock = clock
        self._reports = reports
        self._memory = _Memory()
        self._last: LineageState | None = None

    @property
    def lineage(self) -> str:
        """The lineage's name."""
        return self._record.lineage

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that its objects live in."""
        return self._scheduler

    @property
    def root(self) -> RootView | None:
        """The lineage's checkpoint root; None where this process cannot reach it."""
        return self._root

    @property
    def clock(self) -> Clock:
        """The clock that it goes by."""
        return self._clock

    @property
    def capabilities(self) -> Capabilities:
        """What its scheduler can do."""
        return self._scheduler.capabilities

    @property
    def owes(self) -> bool:
        """Whether something may run by a late call of this process's own that nobody else looks for any more."""
        return bool(self._memory.calls)

    async def read(self) -> LineageState:
        """Read the record and fold it, without taking a step."""
        self._last = await asyncio.to_thread(self._record.refresh)
        return self._last

    async def entries(self) -> list[Entry]:
        """Read the whole record."""
        return await asyncio.to_thread(self._record.entries)

    async def advance(self) -> Advanced:
        """Take the one step that is due.

        Raises:
            ReadOnlyLineage: the record holds what this version does not know; nothing was done.
            MalformedError: the record is damaged; the text names where.
            StoreUnreachable: the record could never be read; later, that is a trouble to wait out.
            StoreError: likewise.
        """
        try:
            state = await asyncio.to_thread(self._record.refresh)
        except (StoreError, StoreUnreachable) as error:
            return self._wait_for_record(error)
        self._record.require_writable()
        step = next_step(state, self._time_for(state), self._scheduler.capabilities)
        trouble = ""
        try:
            try:
                await self._do(state, step)
                await self._settle_calls()
            except Exists:
                _log.debug("%s: another supervisor was faster", self._record.lineage, extra={"action": "append.lost"})
            except SchedulerError as error:
                trouble = str(error)
                _log.warning("%s: %s", self._record.lineage, error, extra={"action": "scheduler.trouble"})
            after = await asyncio.to_thread(self._record.refresh)
        except (StoreError, StoreUnreachable) as error:
            return self._wait_for_record(error)
        self._last = after
        wake_at = step.wake_at if isinstance(step, Poll) else None
        return Advanced(after, step, after.seq > state.seq, wake_at, trouble)

    def _wait_for_record(self, error: StoreError | StoreUnreachable) -> Advanced:
        """A record that cannot be reached for a while stops nothing: the job goes on, and so do we when it is back."""
        if self._last is None:
            raise error
        _log.warning("%s: %s", self._record.lineage, error, extra={"action": "record.trouble"})
        return Advanced(self._last, Poll(why="the record to be reachable"), False, None, str(error))

    def _time_for(self, state: LineageState) -> datetime:
        """The wall clock; or the end of a delay that this process has waited for by its own monotonic clock.

        Whoever recorded the end may have had a clock that was ahead, and a delay is never longer than its rule says.
        """
        now = self._clock.now()
        if state.not_before is None or now >= state.not_before:
            return now
        elapsed = self._clock.monotonic()
        since = self._memory.delayed_since.setdefault(state.not_before, elapsed)
        return state.not_before if elapsed - since >= state.delay.total_seconds() else now

    async def append(self, fact: Fact) -> LineageState:
        """Append a fact of this process's own that holds whatever was appended meanwhile."""
        while True:
            try:
                return await asyncio.to_thread(self._record.append, fact)
            except Exists:
                await asyncio.to_thread(self._record.refresh)

    async def _do(self, state: LineageState, step: Step) -> None:
        opened = state.opened
        if opened is None:
            return
        match step:
            case Submit():
                await self._submit(state, step)
            case Requeue():
                await self._requeue(opened, step)
            case ForbidRestarts():
                await self._forbid_restarts(opened, step.submission)
            case Retire():
                await self._retire(opened, step.submission)
            case Poll():
                await self._poll(opened, state, step)
            case Held():
                if step.settle is not None:
                    await self._poll(opened, state, step.settle)
            case Append():
                await self._append(step.fact, step.generation)
            case Finish():
                await self._finish(state, step)
            case Done():
                await asyncio.to_thread(self._record.settle_index)
            case NotOpened():
                pass

    async def _append(self, fact: Fact, generation: int | None = None) -> LineageState:
        return await asyncio.to_thread(self._record.append, fact, generation)

    async def _submit(self, state: LineageState, step: Submit) -> None:
        """Write down the intent, then make the one call. What it does not tell is found out by token."""
        limit = self._scheduler.capabilities.submit_bound
        secrets = {} if state.opened is None else await asyncio.to_thread(secrets_of, state.opened)
        intent = Submitting(
            n=step.n,
            token=new_token(),
            writer=self._record.writer,
            give_up_at=self._clock.now() + limit,
            base=step.base,
            floor=step.floor,
            restarts_allowed=step.restarts_allowed,
        )
        record_id = await asyncio.to_thread(self._record.id)
        began = self._clock.monotonic()
        after = await self._append(intent)
        submission = after.newest
        if after.opened is None or submission is None:
            return
        give_up = began + limit.total_seconds()
        request = request_of(
            self._record.lineage,
            record_id,
            after.opened,
            submission,
            secrets,
            lambda: self._clock.monotonic() < give_up,
        )
        reach("submit")
        # As late as can be; and what stands still behind it, is seen once it goes on.
        remaining = give_up - self._clock.monotonic()
        if remaining <= 0:
            raise SchedulerError(
                f"submission {step.n} was decided more than {limit.total_seconds():g}s ago and is not made any more"
            )
        try:
            async with asyncio.timeout(remaining):
                reference = await self._scheduler.submit(request)
        except SubmitRefused as error:
            await self._append_own(submission, SubmitRefusedFact(n=step.n, detail=str(error)))
            return
        except TimeoutError:
            self._owe_answer(submission, give_up)
            raise SchedulerError(
                f"submission {step.n} got no answer within {limit.total_seconds():g}s; it is looked for by its token"
            ) from None
        except SchedulerError:
            self._owe_answer(submission, give_up)
            raise
        self._memory.calls.append(OwnCall(submission, reference))

    def _owe_answer(self, submission: SubmissionState, give_up: float) -> None:
        """Others look for what a call that was given up in time may land. For a later one its author must answer."""
        bounds, now = self._scheduler.capabilities, self._clock.monotonic()
        if now >= give_up + bounds.clock_skew.total_seconds():
            until = now + (bounds.landing_bound + bounds.clock_skew).total_seconds()
            self._memory.calls.append(OwnCall(submission, None, until))

    async def _settle_calls(self) -> None:
        """Tell what came of one's own calls, and stop what by now nobody wants: whoever decided so cannot know it."""
        for call in list(self._memory.calls):
            if call.object is None:
                asked_at = self._clock.monotonic()
                call.object = await self._find_own(call.submission.token)
                if call.object is None and asked_at < call.until:
                    continue
            if call.object is not None:
                n, generation = call.submission.n, call.submission.generation
                state = await self._append_own(call.submission, Submitted(n=n, object=call.object))
                if is_unwanted(state, generation, n):
                    await self._stop(call.object, None)
            self._memory.calls.remove(call)

    async def _find_own(self, token: str) -> ObjectRef | None:
        with contextlib.suppress(Ambiguous):
            return await self._scheduler.find(token)
        return None

    async def _append_own(self, submission: SubmissionState, fact: Submitted | SubmitRefusedFact) -> LineageState:
        """Append the result of one's own call: true whatever came in between, and told once."""
        reach("submitted")
        while True:
            state = await asyncio.to_thread(self._record.refresh)
            known = state.submission(submission.generation, submission.n)
            if known is None or known.landing in (Landing.LANDED, Landing.REFUSED):
                return state
            try:
                return await self._append(fact, submission.generation)
            except Exists:
                continue

    async def _requeue(self, opened: Opened, step: Requeue) -> None:
        submission = step.submission
        if submission.object is None:
            return
        await self._append(Requeueing(n=submission.n, restart=step.restart))
        seen = (await self._scheduler.observe([submission.object])).get(submission.object)
        if seen is None or seen.state is not ObjectState.ENDED or seen.restart != step.restart - 1:
            return
        reach("requeue")
        try:
            await self._scheduler.requeue(submission.object, step.restart)
        except SubmitRefused as error:
            _log.warning("%s: %s", self.lineage, error, extra={"action": "requeue.refused"})
            await self._retire(opened, submission)
        except SchedulerError:
            self._memory.calls.append(OwnCall(submission, submission.object))
            raise
        else:
            self._memory.calls.append(OwnCall(submission, submission.object))

    async def _forbid_restarts(self, opened: Opened, submission: SubmissionState) -> None:
        """Turn the switch off, and note it only where it came in time.

        What the scheduler is ending already may have its next restart decided, which no switch takes back: then the
        note would let another object be submitted beside it.
        """
        reference, newest = submission.object, submission.newest
        if reference is None:
            return
        await self._forbid(reference)
        asked_at = self._clock.monotonic()
        seen = (await self._scheduler.observe([reference])).get(reference)
        if seen is None:
            if self._absent_long_enough(reference, asked_at):
                await self._take_news(opened, submission, vanished(submission))
            return
        self._memory.absent_since.pop(reference, None)
        here = newest.restart if newest is not None else 0
        if seen.state in (ObjectState.QUEUED, ObjectState.RUNNING) and seen.restart == here:
            await self._append(RestartsForbidden(n=submission.n), submission.generation)
        else:
            await self._take_news(opened, submission, news(submission, seen))

    async def _forbid(self, object: ObjectRef) -> None:
        reach("set-restarts")
        await self._scheduler.set_restarts(object, False)

    async def _retire(self, opened: Opened, submission: SubmissionState) -> None:
        if submission.object is None or submission.newest is None:
            return
        if submission.retiring is None:
            await self._append(Retiring(n=submission.n, restart=submission.newest.restart), submission.generation)
        await self._forbid(submission.object)
        await self._ask_to_stop(submission, None)
        asked_at = self._clock.monotonic()
        seen = (await self._scheduler.observe([submission.object])).get(submission.object)
        if seen is None:
            gone = self._absent_long_enough(submission.object, asked_at)
        else:
            self._memory.absent_since.pop(submission.object, None)
            gone = seen.state is ObjectState.ENDED and seen.restart == submission.newest.restart
        if gone:
            await self._append(Retired(n=submission.n), submission.generation)
        elif seen is not None:
            await self._take_news(opened, submission, news(submission, seen))

    async def _poll(self, opened: Opened, state: LineageState, step: Poll) -> None:
        """Stop, find and observe, each on its own: what cannot be told of one hides nothing of the others."""
        troubles: list[SchedulerError] = []
        for submission in step.stop:
            with _collected(troubles):
                await self._ask_to_stop(submission, _notice(state, submission))
        for submission in step.find:
            with _collected(troubles):
                await self._find(state, submission)
        with _collected(troubles):
            await self._observe(opened, step.observe)
        if troubles:
            raise SchedulerError("; ".join(dict.fromkeys(str(trouble) for trouble in troubles)))

    async def _observe(self, opened: Opened, submissions: Sequence[SubmissionState]) -> None:
        references = {each.object: each for each in submissions if each.object is not None}
        if not references:
            return
        asked_at = self._clock.monotonic()
        answers = await self._scheduler.observe(list(references))
        for reference, submission in references.items():
            seen = answers.get(reference)
            if seen is not None:
                self._memory.absent_since.pop(reference, None)
                await self._take_news(opened, submission, news(submission, seen))
            elif self._absent_long_enough(reference, asked_at):
                await self._take_news(opened, submission, vanished(submission))

    def _absent_long_enough(self, reference: ObjectRef, asked_at: float) -> bool:
        """Vanished takes two full answers a bound apart on this process's own monotonic clock.

        An answer may have been on its way for long: the bound counts from the first one's arrival to the asking of the
        second.
        """
        since = self._memory.absent_since.setdefault(reference, self._clock.monotonic())
        return asked_at - since >= self._scheduler.capabilities.observe_bound.total_seconds() and asked_at > since

    async def _take_news(
        self, opened: Opened, submission: SubmissionState, found: Sequence[Observed | EndedRestart]
    ) -> None:
        for item in found:
            if isinstance(item, Observed):
                await self._append(item, submission.generation)
            else:
                await self._append_end(opened, submission, item)

    async def _append_end(self, opened: Opened, submission: SubmissionState, ended: EndedRestart) -> None:
        root, epoch = self._root, submission.epoch(ended.restart)
        word = published = None
        if root is not None:
            word = await asyncio.to_thread(root.last_word, epoch, submission.attempt(ended.restart))
            published = await asyncio.to_thread(root.published, submission.generation)
        elif self._reports is not None:
            word = await asyncio.to_thread(self._reports.last_word, submission.attempt(ended.restart))
        cause = cause_of(ended, word)
        if cause is Cause.STOPPED and pending_too_long(opened, submission, self._clock.now()):
            cause = Cause.NO_CAPACITY
        told = (str(ended.exit) if ended.exit else "", ended.evidence, word.detail if word is not None else "")
        await self._append(
            Ended(
                n=submission.n,
                restart=ended.restart,
                cause=cause,
                exit=ended.exit,
                nodes=ended.nodes,
                ended_at=ended.ended_at,
                published=published,
                detail="; ".join(dict.fromkeys(text for text in told if text)),
            ),
            submission.generation,
        )

    async def _ask_to_stop(self, submission: SubmissionState, how: Notice | None) -> None:
        """Ask for an object's end, and after a while again."""
        if submission.object is None:
            return
        now = self._clock.monotonic()
        asked = self._memory.stop_asked.get(submission.object)
        if asked is not None and now - asked < STOP_AGAIN_AFTER.total_seconds():
            return
        await self._stop(submission.object, how)

    async def _stop(self, object: ObjectRef, how: Notice | None) -> None:
        asked_at = self._clock.monotonic()
        reach("stop")
        await self._scheduler.stop(object, how)
        self._memory.stop_asked[object] = asked_at

    async def _find(self, state: LineageState, submission: SubmissionState) -> None:
        """Look for an object by its token. A no is worth what it was when it was asked for."""
        asked_at = self._clock.now()
        bounds = self._scheduler.capabilities
        due = submission.give_up_at + bounds.landing_bound + bounds.clock_skew
        may_land = asked_at <= due
        intended = submission.landing is Landing.INTENDED
        try:
            reference = await self._scheduler.find(submission.token)
        except Ambiguous as error:
            person_knows = state.lifted_hold is not None and state.lifted_hold.token == submission.token
            if intended and person_knows and not may_land:
                await self._append(Abandoned(n=submission.n), submission.generation)
            elif intended and not person_knows and state.hold is None:
                held = ambiguous_hold(state, submission, str(error))
                await self._append(held.fact, held.generation)
            return
        if reference is not None:
            await self._append(Submitted(n=submission.n, object=reference), submission.generation)
        elif intended and not may_land:
            await self._append(Abandoned(n=submission.n), submission.generation)

    async def _finish(self, state: LineageState, step: Finish) -> None:
        final = None
        if self._root is not None:
            final = await asyncio.to_thread(self._root.final_save, state.generation)
        await self._append(
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


def _notice(state: LineageState, submission: SubmissionState) -> Notice | None:
    """Only a suspended job is asked to save; what is abandoned, stale or too long in the queue is ended."""
    suspended = state.stop is not None and state.stop.intent == "suspend"
    if not suspended or submission is not state.newest or state.opened is None:
        return None
    return state.opened.spec.checkpoint_cancelation.notice
