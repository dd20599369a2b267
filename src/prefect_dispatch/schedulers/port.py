"""The port to a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.observation import ObjectRef, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest


class Scheduler(Protocol):
    """What a supervisor needs of a scheduler. Every call may raise :class:`SchedulerError`: then nothing is known."""

    @property
    def capabilities(self) -> Capabilities:
        """What this scheduler can do; constant for its life."""
        ...

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """Hand one submission over, with its token where :meth:`find` can see it.

        Called once per submission, by one process. An adapter may be killed at any moment within it.

        Raises:
            SubmitRefused: for certain, no object exists and none will.
            SchedulerError: anything else; the object may exist or still land.
        """
        ...

    async def find(self, token: str) -> ObjectRef | None:
        """Look for the object with this token. ``None`` is a full, trustworthy "not there (yet)".

        Raises:
            Ambiguous: it cannot know, for example because ended objects are purged.
            SchedulerError: it could not be asked.
        """
        ...

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """Ask for all objects in ONE query. An object that the full answer lacks is missing from the mapping.

        What the scheduler could not tell of an object is an observation with state ``unknown``, never a missing one,
        and keeps nothing of the others back.

        Raises:
            SchedulerError: it could not be asked, or the answer was partial: asked again, it may be told.
        """
        ...

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """Ask for the end of an object, and forbid its restarts. Idempotent; does not wait. Absent or ended: nothing.

        Args:
            object: what to stop, queued or running.
            how: the notice that the program gets first; None to end it at once.

        Raises:
            OutOfReach: it is where no call of this scheduler gets, now or later; :meth:`observe` says unknown of it.
            SchedulerError: anything else.
        """
        ...

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """Set whether the scheduler may restart this object by itself. Idempotent; never stops anything."""
        ...

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """Run the same object again as restart number ``expected_restart``, unless it is past that already.

        Raises:
            SubmitRefused: for certain, it will not run again.
            SchedulerError: anything else.
        """
        ...

    def log(self, object: ObjectRef) -> str | None:
        """The file that the object's output goes to, as this machine sees it; None where it cannot be seen."""
        ...
