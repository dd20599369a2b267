"""The local scheduler: slots on this machine, a state folder, and no daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TypeVar

from prefect_dispatch.errors import OutOfReach, SchedulerError, SubmitRefused, UsageError
from prefect_dispatch.format.names import attempt_of, check_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local_launch import launch, wait_for
from prefect_dispatch.schedulers.local_object import (
    ask_to_exit,
    end,
    is_launched,
    is_retired,
    log_of,
    observe,
    settle,
)
from prefect_dispatch.schedulers.local_processes import living
from prefect_dispatch.schedulers.local_records import MalformedRecord, ObjectFolder
from prefect_dispatch.schedulers.local_request import describe_refusal
from prefect_dispatch.schedulers.local_state import LocalState
from prefect_dispatch.schedulers.python_command import isolated

SCHEDULER = "local"
WRAPPER = isolated("prefect_dispatch.job.__main__", "start", libraries=False)
"""Isolated: a module in the job's folder or PYTHONPATH must not take the place of one of the helper's."""
LAUNCH_BOUND = timedelta(seconds=15)
"""How long a launcher may take to come up; a Python that starts from a cold disk takes seconds."""
STOP_GRACE = timedelta(seconds=10)
"""What a stopped job has beyond its notice period: its wrapper publishes the last save after the program's end."""

T = TypeVar("T")
Advance = Callable[[], None]


class LocalScheduler:
    """Runs jobs on this machine, at most ``slots`` at a time, first in, first out.

    There is no daemon: each call moves the queue on, under a lock, and each job has a launcher of its own that outlives
    the supervisor. An object that was preempted, lost or stopped is said to have ended at once and its slot is free,
    while its processes may live on until ``linger`` is over: what a cluster does, on a laptop.

    Args:
        state_folder: where the queue and the objects are, on this machine's own disk; who shares it shares the slots.
        slots: how many objects may run at a time, by this scheduler's say.
        linger: how long the processes of an object may live on after the scheduler has said that it ended.
        wrapper: the command that runs a job; ``run --submission FILE -- COMMAND`` is added.
        launch_bound: how long a launcher may take to come up before its object counts as never started.
    """

    def __init__(
        self,
        state_folder: Path,
        slots: int,
        linger: timedelta,
        wrapper: tuple[str, ...] = WRAPPER,
        *,
        launch_bound: timedelta = LAUNCH_BOUND,
    ) -> None:
        if slots < 1:
            raise UsageError(f"slots {slots!r} is not a number of slots; use 1 or more")
        self._state = LocalState(state_folder.absolute())
        self._slots = slots
        self._linger = linger
        self._wrapper = wrapper
        self._launch_bound = launch_bound
        self._capabilities = Capabilities(
            scheduler=SCHEDULER,
            requeue=False,
            time_limit=True,
            nodes=1,
            landing_bound=timedelta(seconds=5),
            restart_bound=timedelta(0),
            observe_bound=timedelta(seconds=2),
            unknown_bound=timedelta(minutes=10),
            submit_bound=timedelta(seconds=30),
            poll_interval=timedelta(seconds=1),
            clock_skew=timedelta(seconds=1),
        )

    @property
    def capabilities(self) -> Capabilities:
        """See the port."""
        return self._capabilities

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """See the port. Idempotent by the token: an object that is there already is returned as it is."""

        def work(advance: Advance) -> None:
            if self._state.object(request.token) is None:
                if not request.in_time():
                    # Others ask under the same lock: what they were told is not there must not come later.
                    raise SchedulerError(f"{request.name} comes after it was given up; it is not made")
                refusal = describe_refusal(request)
                if refusal is not None:
                    raise SubmitRefused(refusal)
                self._state.add(request, self._wrapper, self._linger)
            self._enlist(request.token)
            advance()

        check_token(request.token)
        await self._call(work, make=True)
        return self._ref(request.token)

    async def find(self, token: str) -> ObjectRef | None:
        """See the port. Objects are never purged, so the answer is always certain.

        A folder that this process never saw is one that nothing was submitted to: whoever died before the first submit
        must not keep the job waiting.
        """

        def work(advance: Advance) -> bool:
            self._enlist(token)
            advance()
            return self._state.object(token) is not None

        check_token(token)
        return self._ref(token) if await self._call(work, nothing_there=lambda: False) else None

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """See the port. Not there is only what is missing in the folder that it was submitted to.

        Where another folder is in the place of that one, the object is unknown, and the others are answered for. Where
        there is none, its file system may be away for a moment: nothing is known then, and whoever asks waits.
        """

        def nothing_there() -> dict[ObjectRef, Observation]:
            for object in objects:
                raise self._state.away(_folder_id(object) or "of its submit")
            return {}

        def look(object: ObjectRef) -> Observation | None:
            try:
                self._check_folder(object)
            except OutOfReach as why:
                return _unknown(why)
            folder = self._folder(object)
            if folder is None:
                return None
            seen = observe(folder, self._launch_bound)
            # An end that came since the queue was moved on: after it is told, nobody may ever ask again.
            if seen.state is ObjectState.ENDED and not is_retired(folder):
                self._state.retire(folder)
            return seen

        def work(advance: Advance) -> dict[ObjectRef, Observation]:
            for object in objects:
                self._enlist(object.token)
            advance()
            seen = {object: look(object) for object in objects}
            return {object: observation for object, observation in seen.items() if observation is not None}

        try:
            return await self._call(work, nothing_there=nothing_there)
        except OutOfReach as why:
            # This process has seen the folder that is gone, and the one in its place is not looked into.
            return {object: _unknown(why) for object in objects if object.scheduler == SCHEDULER}

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """See the port. The wrapper gives the program its submission's notice; ``how`` says how long it may take."""
        if how is None or not await self._ask_to_exit(object, how.period + STOP_GRACE):
            await self._end(object, Cause.STOPPED, "stopped on request", notice=False, kill_after=timedelta(0))

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """See the port. This scheduler never restarts an object."""

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """See the port. Always refused."""
        raise SubmitRefused(f"object {object} cannot run again: the local scheduler has no requeue; resubmit the job")

    async def preempt(self, object: ObjectRef) -> bool:
        """Take the capacity away: say so, free the slot, and give notice. Its processes live on for up to ``linger``.

        Returns:
            Whether it did; an object that is queued, has ended or is not there is left alone.
        """
        return await self._end(object, Cause.PREEMPTED, "preempted", notice=True, kill_after=self._linger, queued=False)

    async def lose_node(self, object: ObjectRef) -> bool:
        """Say that its node is gone, while its processes go on without notice for up to ``linger``: a cut-off node.

        Returns:
            Whether it did; an object that is queued, has ended or is not there is left alone.
        """
        lost = "the node was reported lost"
        return await self._end(object, Cause.NODE_LOST, lost, notice=False, kill_after=self._linger, queued=False)

    def processes(self, object: ObjectRef) -> list[int]:
        """The pids of the object's program that live, whatever the scheduler says of it."""
        return living(attempt_of(object.token, 0))

    def log(self, object: ObjectRef) -> str | None:
        """See the port."""
        folder = self._folder(object)
        return log_of(folder) if folder is not None else None

    async def _ask_to_exit(self, object: ObjectRef, kill_after: timedelta) -> bool:
        """Ask the object's program to save and exit. Returns whether there was one to ask, or nothing is left to do."""

        def nothing_there() -> bool:
            raise self._state.away(_folder_id(object) or "of its submit")

        def work(advance: Advance) -> bool:
            self._check_folder(object)
            folder = self._folder(object)
            return folder is None or self._is_over(folder) or ask_to_exit(folder, kill_after)

        return await self._call(work, nothing_there=nothing_there)

    async def _end(
        self,
        object: ObjectRef,
        cause: Cause,
        evidence: str,
        *,
        notice: bool,
        kill_after: timedelta,
        queued: bool = True,
    ) -> bool:
        def nothing_there() -> bool:
            raise self._state.away(_folder_id(object) or "of its submit")

        def work(advance: Advance) -> bool:
            self._check_folder(object)
            self._enlist(object.token)
            folder = self._folder(object)
            if folder is None or not (queued or is_launched(folder)) or self._is_over(folder):
                return False
            ended = end(folder, cause, evidence, notice=notice, kill_after=kill_after)
            advance()
            return ended

        return await self._call(work, nothing_there=nothing_there)

    async def _call(
        self, work: Callable[[Advance], T], nothing_there: Callable[[], T] | None = None, make: bool = False
    ) -> T:
        """Do one call's work in a thread, holding the lock. A caller that is cancelled changes nothing any more.

        Args:
            work: what to do in a state folder that is there.
            nothing_there: what to answer where there is none.
            make: whether to make one.
        """
        abandoned = Event()

        def call() -> T:
            if make:
                self._state.make()
            elif not self._state.is_made() and nothing_there is not None:
                return nothing_there()
            return self._locked(work, abandoned)

        try:
            return await asyncio.to_thread(call)
        except OSError as error:
            raise SchedulerError(f"the state folder {self._state.folder} cannot be used: {error}") from error
        finally:
            abandoned.set()

    def _locked(self, work: Callable[[Advance], T], abandoned: Event) -> T:
        children: list[int] = []
        try:
            with self._state.lock(abandoned):
                return work(lambda: self._advance(children))
        finally:
            # Outside of the lock, which nobody should have to wait for while a Python starts.
            for child in children:
                wait_for(child)

    def _advance(self, children: list[int]) -> None:
        """Move the queue on: record each end that is due, then start what the free slots allow."""
        taken = 0
        waiting: list[ObjectFolder] = []
        for folder in self._state.queue():
            if self._is_over(folder):
                self._state.retire(folder)
            elif is_launched(folder):
                taken += 1
            else:
                waiting.append(folder)
        for folder in waiting[: max(0, self._slots - taken)]:
            child = launch(folder)
            if child is not None:
                children.append(child)

    def _enlist(self, token: str) -> None:
        """See that what somebody asks about is in the queue for as long as anything is to be done about it."""
        folder = self._state.object(token)
        if folder is not None and not is_retired(folder):
            self._state.enlist(folder)

    def _is_over(self, folder: ObjectFolder) -> bool:
        try:
            return settle(folder, self._launch_bound)
        except MalformedRecord:
            # Observed as unknown. It keeps its slot, and the others go on.
            return False

    def _check_folder(self, object: ObjectRef) -> None:
        expected = _folder_id(object)
        if object.scheduler == SCHEDULER and expected is not None and expected != self._state.id:
            raise self._state.away(expected, self._state.id)

    def _ref(self, token: str) -> ObjectRef:
        """An object's name holds the folder that it is in: in another one it is not missing but unknown."""
        id = token if self._state.id is None else f"{token}@{self._state.id}"
        return ObjectRef(scheduler=SCHEDULER, id=id, token=token)

    def _folder(self, object: ObjectRef) -> ObjectFolder | None:
        return self._state.object(object.token) if object.scheduler == SCHEDULER else None


def _unknown(why: OutOfReach) -> Observation:
    return Observation(state=ObjectState.UNKNOWN, evidence=str(why))


def _folder_id(object: ObjectRef) -> str | None:
    """The id of the state folder that an object was submitted to; None where its name does not tell."""
    return object.id.partition("@")[2] or None
