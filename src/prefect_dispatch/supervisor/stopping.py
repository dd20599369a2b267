"""Stopping: ending objects, and seeing to it that the scheduler starts none of them again."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from prefect_dispatch.errors import OutOfReach
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import RestartsForbidden, Retired, Retiring
from prefect_dispatch.model.observation import EndedRestart, ObjectRef, ObjectState
from prefect_dispatch.model.state import LineageState, SubmissionState
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.observing import Observer

STOP_AGAIN_AFTER = timedelta(seconds=30)
"""How long after a stop was asked for it is asked for again, by the same process."""


class Stopper:
    """Asks the scheduler to end objects, and to restart none.

    Args:
        access: the lineage.
        observer: tells what became of them.
    """

    def __init__(self, access: Access, observer: Observer) -> None:
        self._access = access
        self._observer = observer
        self._asked: dict[ObjectRef, tuple[float, Notice | None]] = {}

    async def ask_to_stop(self, submission: SubmissionState, how: Notice | None) -> None:
        """Ask for an object's end, and again after a while, or at once where another kind of end is due by now."""
        if submission.object is None:
            return
        now = self._access.clock.monotonic()
        asked = self._asked.get(submission.object)
        if asked is not None and now - asked[0] < STOP_AGAIN_AFTER.total_seconds() and asked[1] == how:
            return
        await self.stop(submission.object, how)

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """Ask for an object's end."""
        asked_at = self._access.clock.monotonic()
        reach("stop")
        await self._access.scheduler.stop(object, how)
        self._asked[object] = (asked_at, how)

    async def retire(self, state: LineageState, submission: SubmissionState) -> None:
        """End an object for good: switch off, stop asked, and noted once it is seen to have ended."""
        reference, newest = submission.object, submission.newest
        if reference is None or newest is None:
            return
        if submission.retiring is None:
            await self._access.append(Retiring(n=submission.n, restart=newest.restart), submission.generation)
        await self._end(submission, reference)
        answers = await self._observer.look([reference])
        if reference not in answers:
            return
        seen = answers[reference]
        if seen is None or (seen.state is ObjectState.ENDED and seen.restart == newest.restart):
            await self._access.append(Retired(n=submission.n), submission.generation)
        else:
            await self._observer.take(state, submission, seen)
            await self._observer.hold_if_unknown(state, [submission])

    async def forbid_restarts(self, state: LineageState, submission: SubmissionState) -> None:
        """Turn the switch off, and note it only where it came in time.

        What the scheduler is ending already may have its next restart decided, which no switch takes back: then the
        note would let another object be submitted beside it.
        """
        reference, newest = submission.object, submission.newest
        if reference is None:
            return
        with contextlib.suppress(OutOfReach):
            await self._forbid(reference)
        answers = await self._observer.look([reference])
        if reference not in answers:
            return
        seen, here = answers[reference], newest.restart if newest is not None else 0
        if seen is not None and seen.state in (ObjectState.QUEUED, ObjectState.RUNNING) and seen.restart == here:
            await self._access.append(RestartsForbidden(n=submission.n), submission.generation)
        else:
            await self._observer.take(state, submission, seen)
            await self._observer.hold_if_unknown(state, [submission])

    async def give_up(self, state: LineageState, submission: SubmissionState) -> None:
        """Take an object for gone on a person's word, unless the scheduler knows its state again."""
        reference, newest = submission.object, submission.newest
        if reference is None or newest is None:
            return
        answers = await self._observer.look([reference])
        if reference not in answers:
            return
        seen = answers[reference]
        unknown = seen is None or seen.state is ObjectState.UNKNOWN
        if not unknown and (submission.live or (seen is not None and seen.restart > newest.restart)):
            await self._observer.take(state, submission, seen)
            return
        await self._end(submission, reference)
        if submission.live:
            evidence = "its state stayed unknown, and a person has given it up"
            ended = EndedRestart(restart=newest.restart, cause=Cause.VANISHED, evidence=evidence)
            await self._observer.append_end(state, submission, ended)
        else:
            await self._access.append(Retired(n=submission.n), submission.generation)

    async def _end(self, submission: SubmissionState, object: ObjectRef) -> None:
        """Switch off and stop. What is out of reach cannot be asked to; what is said of it tells the rest."""
        with contextlib.suppress(OutOfReach):
            await self._forbid(object)
            await self.ask_to_stop(submission, None)

    async def _forbid(self, object: ObjectRef) -> None:
        reach("set-restarts")
        await self._access.scheduler.set_restarts(object, False)


def notice_for(state: LineageState, submission: SubmissionState) -> Notice | None:
    """Only a suspended job is asked to save; what is abandoned, stale or too long in the queue is ended."""
    suspended = state.stop is not None and state.stop.intent == "suspend"
    if not suspended or submission is not state.newest or state.opened is None:
        return None
    return state.opened.spec.checkpoint_cancelation.notice
