"""What the conformance suite of schedulers asks of the world that it runs in: one scheduler, and a hand on it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from unittest import SkipTest

from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.port import Scheduler


class SchedulerCase(Protocol):
    """One scheduler in a state that the suite can work with: empty, with room for two objects at a time."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler under test."""
        ...

    def another(self) -> Scheduler:
        """The same scheduler as another process would open it."""
        ...

    def exiting(self, code: int) -> SubmissionRequest:
        """A new request, with a new token, for a job that soon exits with this code."""
        ...

    def lasting(self) -> SubmissionRequest:
        """A new request, with a new token, for a job that runs until it is ended."""
        ...

    def impossible(self) -> SubmissionRequest:
        """A new request, with a new token, for more than the scheduler has."""
        ...

    async def submit_behind(self) -> ObjectRef:
        """Submit a lasting job that stays queued for as long as the test goes on."""
        ...

    @property
    def restarts_by_itself(self) -> bool:
        """Whether what was preempted and may restart runs again without anybody's request."""
        ...

    async def preempt(self, object: ObjectRef) -> None:
        """Have the capacity of an object taken away; return once the scheduler has begun to.

        One that runs is ended by it. One that has begun to end, or has ended, may be left as it is.
        """
        ...

    async def wait_until(self, object: ObjectRef, state: ObjectState) -> Observation:
        """Let time pass until the object is in this state; fail after a bound."""
        ...


class MoodyCase(SchedulerCase, Protocol):
    """What a case may offer besides; a test that needs what a case lacks is skipped, and says so."""

    def outage(self) -> AbstractAsyncContextManager[None]:
        """While it lasts, the scheduler answers nobody; what runs goes on."""
        ...

    def partial(self, object: ObjectRef) -> AbstractAsyncContextManager[None]:
        """While it lasts, whatever would tell of this object does not answer, and the rest does."""
        ...

    async def purge(self, object: ObjectRef) -> None:
        """Have an ended object forgotten, as far as this scheduler ever forgets one."""
        ...

    async def say_unknown(self, object: ObjectRef) -> None:
        """Have the scheduler say a word of this object that the adapter does not know."""
        ...

    async def lose_node(self, object: ObjectRef) -> None:
        """Have the node lost on which an object runs."""
        ...


def offer(case: SchedulerCase, name: str) -> Any:
    """What a case offers by this name; the test is skipped where it has no such thing.

    Args:
        case: the case.
        name: a method of :class:`MoodyCase`.
    """
    found = getattr(case, name, None)
    if found is None:
        raise SkipTest(f"{type(case).__name__} has no {name}(): {(getattr(MoodyCase, name).__doc__ or '').strip()}")
    return found


async def let_others_run(case: SchedulerCase) -> None:
    """Let as much happen as it takes another job to run to its end."""
    other = await case.scheduler.submit(case.exiting(0))
    await case.wait_until(other, ObjectState.ENDED)


def assert_consistent(observation: Observation) -> None:
    """Check that an observation does not contradict itself; see :class:`Observation`."""
    numbers = [end.restart for end in observation.ended]
    assert numbers == sorted(set(numbers)), observation
    over = observation.state is ObjectState.ENDED
    assert (numbers[-1:] == [observation.restart]) is over, observation
    assert all(number <= observation.restart for number in numbers), observation
    if observation.state is ObjectState.QUEUED:
        assert observation.nodes == () and observation.started_at is None, observation
    if observation.state is ObjectState.RUNNING:
        assert observation.nodes and observation.started_at is not None, observation
