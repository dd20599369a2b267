"""A scheduler in memory whose answers the test gives, and whose objects live and end as the test says."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.scripted_answer import Answer, accepts
from prefect_dispatch.testing.scripted_object import ScriptedObject

SCRIPTED = Capabilities(
    scheduler="scripted",
    requeue=True,
    time_limit=True,
    landing_bound=timedelta(seconds=60),
    restart_bound=timedelta(minutes=5),
    observe_bound=timedelta(seconds=60),
)


class ScriptedScheduler:
    """Implements the port; everything else is the test's hand on it.

    Nothing happens by itself: objects stay queued until :meth:`start`, run until :meth:`end`. Time is the clock's; a
    submission may land late by it. A token that is submitted twice makes two objects, as on Slurm.

    Args:
        clock: what time it is, aware.
        capabilities: what it can do.
        linger: how long processes live on after an end with ``lingers``.
        slow_stops: whether a stopped object is only ``ending`` until the test ends it.

    Attributes:
        submit_calls: how often submit was called, by token. One process calls it once.
        requests: the last request, by token.
        stop_calls: every stop, in order.
        requeue_calls: every requeue, in order, with the expected restart.
        observe_calls: how many queries observe has cost.
        outage: what every call raises while it is set; nothing has an effect then.
        observe_error: what observe raises while it is set, such as for a partial answer.
        find_errors: what find raises, by token.
        unknown: the words that observe cannot make sense of, by token.

    Example:
        >>> scheduler = ScriptedScheduler(lambda: now)
        >>> scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=30)))
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        capabilities: Capabilities = SCRIPTED,
        *,
        linger: timedelta = timedelta(0),
        slow_stops: bool = False,
    ) -> None:
        self._clock = clock
        self._capabilities = capabilities
        self._linger = linger
        self._slow_stops = slow_stops
        self._submit_answers: deque[Answer] = deque()
        self._requeue_answers: deque[Answer] = deque()
        self._objects: dict[ObjectRef, ScriptedObject] = {}
        self._pending: list[tuple[datetime, Callable[[], None]]] = []
        self._living: dict[str, datetime | None] = {}
        self.submit_calls: Counter[str] = Counter()
        self.requests: dict[str, SubmissionRequest] = {}
        self.stop_calls: list[tuple[ObjectRef, Notice | None]] = []
        self.requeue_calls: list[tuple[ObjectRef, int]] = []
        self.observe_calls = 0
        self.outage: SchedulerError | None = None
        self.observe_error: SchedulerError | None = None
        self.find_errors: dict[str, SchedulerError] = {}
        self.unknown: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See the port."""
        return self._capabilities

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """See the port."""
        self.submit_calls[request.token] += 1
        self.requests[request.token] = request
        number = str(self.submit_calls.total())
        ref = ObjectRef(scheduler=self._capabilities.scheduler, id=number, token=request.token)
        landed = ScriptedObject(ref=ref, restarts_allowed=request.restarts_allowed and self._capabilities.requeue)

        def land() -> None:
            self._objects[ref] = landed

        await self._answer(self._submit_answers, land)
        return ref

    async def find(self, token: str) -> ObjectRef | None:
        """See the port. Two objects with one token are ambiguous."""
        self._reach()
        if token in self.find_errors:
            raise self.find_errors[token]
        found = [ref for ref in self._objects if ref.token == token]
        if len(found) > 1:
            raise Ambiguous(f"token {token!r} is carried by {len(found)} objects: {', '.join(map(str, found))}")
        return found[0] if found else None

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """See the port."""
        self.observe_calls += 1
        self._reach()
        if self.observe_error is not None:
            raise self.observe_error
        return {ref: self._observation(self._objects[ref]) for ref in objects if ref in self._objects}

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """See the port."""
        self.stop_calls.append((object, how))
        self._reach()
        await self.set_restarts(object, False)
        found = self._objects.get(object)
        if found is None or found.state in (ObjectState.ENDED, ObjectState.ENDING):
            return
        if self._slow_stops and found.state is ObjectState.RUNNING:
            self.begin_ending(object)
        else:
            self.end(object, Cause.STOPPED, evidence="stopped on request")

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """See the port."""
        self._reach()
        found = self._objects.get(object)
        if found is not None:
            self._objects[object] = found.with_restarts(allowed and self._capabilities.requeue)

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """See the port. Refused while the restart before has not ended, so that it never ends a run."""
        self.requeue_calls.append((object, expected_restart))
        self._reach()
        found = self._objects.get(object)
        if not self._capabilities.requeue:
            raise SubmitRefused(f"object {object} cannot run again: this scheduler has no requeue; resubmit the job")
        if found is None:
            raise SchedulerError(f"object {object} is not known; look for it by its token")
        if found.restart >= expected_restart:
            return
        if found.restart + 1 != expected_restart or not found.is_over:
            raise SubmitRefused(
                f"object {object} is {found.state} in restart {found.restart}; it cannot become {expected_restart}"
            )
        await self._answer(self._requeue_answers, lambda: self._run_again(object, expected_restart))

    def log(self, object: ObjectRef) -> str | None:
        """See the port: the file that the request named."""
        request = self.requests.get(object.token)
        return str(request.log) if request is not None and request.log is not None else None

    def script_submit(self, *answers: Answer) -> None:
        """Give the answers to the next calls of submit; after them every call is accepted."""
        self._submit_answers.extend(answers)

    def script_requeue(self, *answers: Answer) -> None:
        """Give the answers to the next calls of requeue; after them every call is accepted."""
        self._requeue_answers.extend(answers)

    def object_of(self, token: str) -> ObjectRef:
        """The newest object with this token that has landed, whether the submitter was told of it or not.

        Raises:
            KeyError: there is none.
        """
        self._catch_up()
        for ref in reversed(self._objects):
            if ref.token == token:
                return ref
        raise KeyError(f"token {token!r} has no object at {self._clock()}")

    def start(self, object: ObjectRef, node: str = "node-1") -> None:
        """Let a queued object run."""
        self._catch_up()
        running = self._objects[object].running(self._clock(), node)
        self._objects[object] = running
        self._living[running.attempt] = None

    def begin_ending(self, object: ObjectRef) -> None:
        """Let it be ending; its processes live until :meth:`end`."""
        self._catch_up()
        self._objects[object] = self._objects[object].ending()

    def end(
        self,
        object: ObjectRef,
        cause: Cause | None = None,
        exit: Exit | None = None,
        *,
        evidence: str = "scripted",
        lingers: bool = False,
    ) -> None:
        """Say that the current restart has ended.

        Args:
            object: which one.
            cause: what the scheduler says ended it; None leaves it to the exit.
            exit: how the batch process ended.
            evidence: the scheduler's words.
            lingers: whether its processes live on for the scheduler's ``linger``.
        """
        self._catch_up()
        now = self._clock()
        over = self._objects[object].over(now, cause, exit, evidence)
        self._objects[object] = over
        if over.attempt in self._living:
            self._living[over.attempt] = now + self._linger if lingers else now

    def restart(self, object: ObjectRef, cause: Cause = Cause.PREEMPTED, *, accounted: bool = True) -> None:
        """Let the scheduler restart an object by itself: it is queued again as the next restart.

        Args:
            object: which one; it may run or have ended.
            cause: what ended the restart before, if it has not ended yet.
            accounted: whether accounting keeps that end; otherwise nobody learns how it ended.

        Raises:
            ValueError: the object may not be restarted: a test that does it anyway tests nothing.
        """
        self._catch_up()
        if not self._objects[object].restarts_allowed:
            raise ValueError(f"object {object} may not be restarted by the scheduler")
        if not self._objects[object].is_over:
            self.end(object, cause, evidence="restarted by the scheduler", lingers=True)
        over = self._objects[object]
        self._objects[object] = (over if accounted else over.without_last_end()).again()

    def purge(self, object: ObjectRef, *, ambiguous: bool = True) -> None:
        """Forget an object: the full answer lacks it from now on, and find cannot know or, if told so, says no."""
        self._catch_up()
        del self._objects[object]
        if ambiguous:
            text = f"token {object.token!r} is not known; ended objects are purged after a while"
            self.find_errors[object.token] = Ambiguous(text)

    def living(self) -> frozenset[str]:
        """The attempts whose processes live, whatever the scheduler says of them."""
        self._catch_up()
        now = self._clock()
        return frozenset(attempt for attempt, until in self._living.items() if until is None or now < until)

    async def _answer(self, answers: deque[Answer], effect: Callable[[], None]) -> None:
        self._reach()
        answer = answers.popleft() if answers else accepts()
        if answer.takes_effect_after is not None:
            self._pending.append((self._clock() + answer.takes_effect_after, effect))
            self._catch_up()
        if answer.hangs:
            await asyncio.Event().wait()
        if answer.error is not None:
            raise answer.error

    def _run_again(self, object: ObjectRef, expected_restart: int) -> None:
        found = self._objects.get(object)
        if found is not None and found.is_over and found.restart + 1 == expected_restart:
            self._objects[object] = found.again()

    def _observation(self, object: ScriptedObject) -> Observation:
        word = self.unknown.get(object.ref.token)
        if word is None:
            return object.observation()
        return Observation(state=ObjectState.UNKNOWN, restart=object.restart, evidence=word)

    def _reach(self) -> None:
        self._catch_up()
        if self.outage is not None:
            raise self.outage

    def _catch_up(self) -> None:
        """Let happen what the clock says is due."""
        now = self._clock()
        due = [entry for entry in self._pending if entry[0] <= now]
        self._pending = [entry for entry in self._pending if entry[0] > now]
        for _, effect in sorted(due, key=lambda entry: entry[0]):
            effect()
