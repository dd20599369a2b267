"""A scheduler in memory: the port over a cluster in memory, with answers that come late, wrong or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.memory_cluster import Effect, MemoryCluster
from prefect_dispatch.testing.memory_object import MemoryObject
from prefect_dispatch.testing.scheduler_shape import Shape
from prefect_dispatch.testing.scripted_answer import Answer, accepts

AT_ONCE = accepts()


class MemoryScheduler(MemoryCluster):
    """Implements the port; everything else is the test's hand on it and its look at the truth.

    A token that is submitted twice makes two objects, as on Slurm.

    Args:
        clock: what time it is at the cluster, aware.
        shape: how it treats its objects.
        slots: how many objects run at a time; None leaves every start to the test.

    Attributes:
        submit_calls: how often submit was called, by token. One process calls it once.
        stop_calls: every stop, in order.
        requeue_calls: every requeue, in order, with the expected restart.
        observe_calls: how many queries observe has cost.
        outage: what every call raises while it is set; nothing has an effect then.
        observe_error: what observe raises while it is set, such as for a partial answer.
        find_errors: what find raises, by token.
        unknown: the words that observe cannot make sense of, by token.

    Example:
        >>> scheduler = MemoryScheduler(clock.now, SLURM, slots=2)
        >>> scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=30)))
    """

    def __init__(self, clock: Callable[[], datetime], shape: Shape, slots: int | None = None) -> None:
        super().__init__(clock, shape, slots)
        self._submit_answers: deque[Answer] = deque()
        self._requeue_answers: deque[Answer] = deque()
        self._stop_answers: deque[Answer] = deque()
        self.submit_calls: Counter[str] = Counter()
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
        return self._shape.capabilities

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """See the port."""
        self.submit_calls[request.token] += 1
        self.requests[request.token] = request
        number = str(self.submit_calls.total())
        ref = ObjectRef(scheduler=self._shape.name, id=number, token=request.token)
        restarts_allowed = request.restarts_allowed and self.capabilities.requeue

        def land(at: datetime) -> None:
            self._land(ref, restarts_allowed)
            self._fill_slots(at)

        await self._answer(self._submit_answers, land, accepts(self._shape.landing))
        return ref

    async def find(self, token: str) -> ObjectRef | None:
        """See the port. Two objects with one token are ambiguous, and so is one that was forgotten."""
        self._reach()
        if token in self.find_errors:
            raise self.find_errors[token]
        made = [each.ref for each in self.objects(token)]
        known = [ref for ref in made if self._known(ref) is not None]
        if len(known) > 1:
            raise Ambiguous(f"token {token!r} is carried by {len(known)} objects: {', '.join(map(str, known))}")
        if made and not known:
            raise Ambiguous(f"token {token!r} is not known; ended objects are purged, and nothing accounts for them")
        return known[0] if known else None

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """See the port."""
        self.observe_calls += 1
        self._reach()
        if self.observe_error is not None:
            raise self.observe_error
        known = {ref: self._known(ref) for ref in objects}
        return {ref: self._observation(found) for ref, found in known.items() if found is not None}

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """See the port."""
        self.stop_calls.append((object, how))

        def stop(at: datetime) -> None:
            if object in self._objects:
                self._stop(object, how, at)

        await self._answer(self._stop_answers, stop, AT_ONCE)

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """See the port. A restart that is under way already is not taken back by it."""
        self._reach()
        found = self._objects.get(object)
        if found is not None:
            self._objects[object] = found.with_restarts(allowed and self.capabilities.requeue)

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """See the port. Refused while the restart before has not ended, so that it never ends a run."""
        self.requeue_calls.append((object, expected_restart))
        self._reach()
        found = self._objects.get(object)
        if not self.capabilities.requeue:
            raise SubmitRefused(f"object {object} cannot run again: this scheduler has no requeue; resubmit the job")
        if found is None or found.purged:
            raise SchedulerError(f"object {object} is not known; look for it by its token")
        if found.restart >= expected_restart:
            return
        if found.restart + 1 != expected_restart or not found.is_over:
            raise SubmitRefused(
                f"object {object} is {found.state} in restart {found.restart}; it cannot become {expected_restart}"
            )

        def run_again(at: datetime) -> None:
            now = self._objects[object]
            if now.is_over and not now.purged and now.restart + 1 == expected_restart:
                self._again(object, at)

        await self._answer(self._requeue_answers, run_again, AT_ONCE)

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

    def script_stop(self, *answers: Answer) -> None:
        """Give the answers to the next calls of stop; after them every call is accepted."""
        self._stop_answers.extend(answers)

    async def _answer(self, answers: deque[Answer], effect: Effect, otherwise: Answer) -> None:
        now = self._reach()
        answer = answers.popleft() if answers else otherwise
        if answer.takes_effect_after is not None:
            self._at(now + answer.takes_effect_after, effect)
            self._catch_up()
        if answer.hangs:
            await asyncio.Event().wait()
        if answer.error is not None:
            raise answer.error

    def _observation(self, object: MemoryObject) -> Observation:
        told = object.observation(
            count_rises=self._shape.count_rises_while_ending, earlier_ends=self._shape.earlier_ends
        )
        word = self.unknown.get(object.ref.token)
        if word is None:
            return told
        return Observation(state=ObjectState.UNKNOWN, restart=told.restart, evidence=word)

    def _reach(self) -> datetime:
        now = self._catch_up()
        if self.outage is not None:
            raise self.outage
        return now
