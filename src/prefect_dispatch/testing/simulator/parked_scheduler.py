"""A scheduler whose every call parks before and after its effect, may fail, and may lose its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Protocol

from prefect_dispatch.errors import Ambiguous, SchedulerError
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.observation import ObjectRef, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.scripted_answer import Answer, accepts, hangs, refuses, times_out
from prefect_dispatch.testing.simulator.stage import Stage

LATENCIES = (0.0, 0.0, 0.1, 2.0, 15.0, 50.0)
"""Seconds that a call is on its way when the scheduler is slow."""


class SchedulerWatcher(Protocol):
    """Is told what one supervisor asks of the scheduler, and when."""

    def asks_to_submit(self, request: SubmissionRequest) -> None:
        """It calls submit."""
        ...

    def will_land(self, token: str, after: float | None) -> None:
        """The scheduler has taken a submission, whose object can be seen after so many seconds, or never."""
        ...

    def begins_query(self) -> None:
        """It asks about objects."""
        ...

    def cannot_tell(self, token: str) -> None:
        """The scheduler could not tell whether it knows a token."""
        ...

    def stopped(self, object: ObjectRef) -> None:
        """Its stop of an object has had its effect."""
        ...

    def requeues(self, object: ObjectRef, expected_restart: int) -> None:
        """It calls requeue."""
        ...


class ParkedScheduler:
    """One supervisor's way to the scheduler; see :class:`~prefect_dispatch.schedulers.port.Scheduler`.

    Args:
        scheduler: the scheduler behind it.
        stage: whose turn it is, and what goes wrong.
        watcher: is told of calls and effects.
    """

    def __init__(self, scheduler: MemoryScheduler, stage: Stage, watcher: SchedulerWatcher) -> None:
        self._scheduler = scheduler
        self._stage = stage
        self._watcher = watcher

    @property
    def capabilities(self) -> Capabilities:
        """See the port."""
        return self._scheduler.capabilities

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """See the port. What becomes of it is drawn anew for each call."""
        self._watcher.asks_to_submit(request)
        what = f"submit {request.name}"
        # The caller may stand still right before its call goes out.
        self._stage.pause()
        await self._travel()
        self._may_fail(what)
        if self._scheduler.outage is not None:
            self._stage.note(f"{what}: {self._scheduler.outage}")
            raise self._scheduler.outage
        answer = self._draw_landing()
        after = answer.takes_effect_after
        self._scheduler.script_submit(answer)
        self._stage.note(f"{what}: {_describe(answer)}")
        self._watcher.will_land(request.token, None if after is None else after.total_seconds())
        reference = await self._scheduler.submit(request)
        await self._travel()
        self._may_lose(what)
        return reference

    async def find(self, token: str) -> ObjectRef | None:
        """See the port."""
        what = f"find {token}"
        self._watcher.begins_query()
        await self._ask(what)
        try:
            found = await self._scheduler.find(token)
        except SchedulerError as error:
            self._stage.note(f"{what}: {type(error).__name__}: {error}")
            if isinstance(error, Ambiguous):
                self._watcher.cannot_tell(token)
            raise
        self._stage.note(f"{what}: {found}")
        await self._answer()
        return found

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """See the port."""
        what = f"observe {', '.join(map(str, objects))}"
        self._watcher.begins_query()
        await self._ask(what)
        try:
            answers = await self._scheduler.observe(objects)
        except SchedulerError as error:
            self._stage.note(f"{what}: {error}")
            raise
        told = ", ".join(f"{each} {seen.state} r{seen.restart}" for each, seen in answers.items())
        self._stage.note(f"{what}: {told or 'not there'}")
        await self._answer()
        return answers

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """See the port."""
        what = f"stop {object}{' with notice' if how else ''}"
        await self._ask(what)
        await self._scheduler.stop(object, how)
        self._stage.note(what)
        self._watcher.stopped(object)
        await self._answer()
        self._may_lose(what)

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """See the port."""
        what = f"set restarts of {object} to {allowed}"
        await self._ask(what)
        await self._scheduler.set_restarts(object, allowed)
        self._stage.note(what)
        await self._answer()
        self._may_lose(what)

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """See the port."""
        what = f"requeue {object} as r{expected_restart}"
        self._watcher.requeues(object, expected_restart)
        await self._ask(what)
        if self._scheduler.outage is None and self._stage.chance(self._stage.setting.odd_landing / 2):
            late = accepts(timedelta(seconds=self._stage.random.choice((5, 50))))
            self._scheduler.script_requeue(self._stage.random.choice((late, times_out(late.takes_effect_after))))
        try:
            await self._scheduler.requeue(object, expected_restart)
        except SchedulerError as error:
            self._stage.note(f"{what}: {type(error).__name__}: {error}")
            raise
        self._stage.note(what)
        self._stage.happen("requeue by us")
        await self._answer()
        self._may_lose(what)

    def log(self, object: ObjectRef) -> str | None:
        """See the port."""
        return self._scheduler.log(object)

    async def _ask(self, what: str) -> None:
        self._stage.pause()
        await self._travel()
        self._may_fail(what)

    async def _answer(self) -> None:
        await self._travel()
        self._stage.pause()

    async def _travel(self) -> None:
        """Let a message be on its way; a caller may give up meanwhile."""
        if self._stage.chance(0.2):
            await asyncio.sleep(self._stage.random.choice(LATENCIES))
        else:
            self._stage.kernel.park()

    def _may_fail(self, what: str) -> None:
        if self._stage.chance(self._stage.setting.scheduler_failure):
            self._stage.happen("scheduler failure")
            self._stage.note(f"{what}: fails")
            raise SchedulerError(f"{what}: the scheduler does not answer")

    def _may_lose(self, what: str) -> None:
        if self._stage.chance(self._stage.setting.lost_answer):
            self._stage.happen("lost answer of the scheduler")
            self._stage.note(f"{what}: the answer is lost")
            raise SchedulerError(f"{what}: the answer is lost")

    def _draw_landing(self) -> Answer:
        stage = self._stage
        if not stage.chance(stage.setting.odd_landing):
            return accepts(self._scheduler.shape.landing)
        if stage.random.random() < 0.15:
            stage.happen("refused submission")
            return refuses()
        late = stage.chance(stage.setting.very_late)
        seconds = stage.random.choice((130, 250, 700)) if late else stage.random.choice((0, 5, 30, 55))
        if stage.random.random() < 0.2:
            stage.happen("submission that never lands")
            return stage.random.choice((times_out(None), hangs(None)))
        stage.happen("very late landing" if late else "late landing" if seconds else "landing without an answer")
        # What was accepted can be seen within the bounds, else it would be taken for vanished.
        after = timedelta(seconds=seconds)
        answers = [times_out(after), hangs(after)] if late else [times_out(after), hangs(after), accepts(after)]
        return stage.random.choice(answers)


def _describe(answer: Answer) -> str:
    told = "hangs" if answer.hangs else str(answer.error) if answer.error else "accepted"
    if answer.takes_effect_after is None:
        return f"{told}; nothing will land"
    return f"{told}; lands after {answer.takes_effect_after.total_seconds():g} s"
