"""The conformance suite's world over the in-memory scheduler, in any shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scheduler_case import assert_consistent
from prefect_dispatch.testing.scheduler_shape import Shape
from prefect_dispatch.testing.scripted_answer import refuses

PATIENCE = 100
"""How many things it lets happen while it waits for a state."""


class MemoryCase:
    """Two slots and a clock of its own; programs exit when somebody waits for their end.

    Args:
        folder: where the requests say that they run; nothing is written there.
        shape: the scheduler's.
        kind: the class of the scheduler, for one that differs.
    """

    def __init__(self, folder: Path, shape: Shape, kind: type[MemoryScheduler] = MemoryScheduler) -> None:
        self._folder = folder
        self._clock = ManualClock()
        self._shape = shape
        self._codes: dict[str, int] = {}
        self.scheduler = kind(self._clock.now, shape, slots=2)

    @property
    def restarts_by_itself(self) -> bool:
        """See the case."""
        return self._shape.restarts_by_itself

    def another(self) -> MemoryScheduler:
        """See the case."""
        return self.scheduler

    def exiting(self, code: int) -> SubmissionRequest:
        """See the case."""
        request = self.lasting()
        self._codes[request.token] = code
        return request

    def lasting(self) -> SubmissionRequest:
        """See the case."""
        return plain_request(self._folder, "train", log=self._folder / "log")

    def impossible(self) -> SubmissionRequest:
        """See the case."""
        self.scheduler.script_submit(refuses("resources.nodes 2: there is one node"))
        return self.lasting()

    async def submit_behind(self) -> ObjectRef:
        """See the case."""
        for _ in range(2):
            await self.scheduler.submit(self.lasting())
        return await self.scheduler.submit(self.lasting())

    async def preempt(self, object: ObjectRef) -> None:
        """See the case."""
        with suppress(ValueError):
            # What is ending already has no capacity left to lose.
            self.scheduler.preempt(object)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """See the case."""
        self.scheduler.outage = SchedulerError("the scheduler does not answer")
        yield
        self.scheduler.outage = None

    @asynccontextmanager
    async def partial(self, object: ObjectRef) -> AsyncIterator[None]:
        """See the case."""
        self.scheduler.observe_error = SchedulerError(f"the answer was cut off before {object}")
        yield
        self.scheduler.observe_error = None

    async def purge(self, object: ObjectRef) -> None:
        """See the case."""
        self.scheduler.purge(object)

    async def say_unknown(self, object: ObjectRef) -> None:
        """See the case."""
        self.scheduler.unknown[object.token] = "REVOKED"

    async def lose_node(self, object: ObjectRef) -> None:
        """See the case."""
        (found,) = self.scheduler.objects(object.token)
        self.scheduler.lose_node(found.nodes[0])

    async def wait_until(self, object: ObjectRef, state: ObjectState) -> Observation:
        """See the case: the clock goes from one thing that is due to the next."""
        for _ in range(PATIENCE):
            observation = (await self.scheduler.observe([object]))[object]
            assert_consistent(observation)
            due = self.scheduler.next_due()
            if observation.state is state:
                return observation
            if observation.state is ObjectState.RUNNING and object.token in self._codes:
                self.scheduler.exit(object, self._codes[object.token])
            elif due is not None:
                self._clock.turn(due - self._clock.now())
            else:
                break
        raise AssertionError(f"{object} is never {state}")
