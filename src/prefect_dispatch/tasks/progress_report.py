"""The progress of a try, as the program tells it."""

from __future__ import annotations

import asyncio
from uuid import UUID

from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

from prefect_dispatch.model.state import LineageState
from prefect_dispatch.pictures.execution_page import as_words
from prefect_dispatch.supervisor.advance import Supervisor

PROGRESS_INTERVAL_SECONDS = 5.0


class ProgressReport:
    """One progress artifact of a try, made when the program first tells its progress, then updated now and then."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._artifact: UUID | None = None
        self._shown: tuple[float, str] | None = None
        self._next = 0.0

    async def update(self, state: LineageState, *, last: bool = False) -> None:
        """Show the present progress, if there is one and it is time to; ``last`` does not wait for that."""
        root, submission = self._supervisor.root, state.newest
        if root is None or submission is None or submission.newest is None:
            return
        if self._supervisor.clock.monotonic() < self._next and not last:
            return
        self._next = self._supervisor.clock.monotonic() + PROGRESS_INTERVAL_SECONDS
        attempt = submission.attempt(submission.newest.restart)
        progress = await asyncio.to_thread(root.progress, attempt)
        if progress is None or progress.percent is None:
            return
        shown = (progress.percent, as_words(progress.status))
        if shown == self._shown:
            return
        if self._artifact is None:
            self._artifact = await acreate_progress_artifact(
                shown[0], key=f"progress-{self._supervisor.lineage}", description=shown[1] or "running"
            )
        else:
            await aupdate_progress_artifact(self._artifact, shown[0], description=shown[1] or "running")
        # Only now: what could not be shown is still to be shown.
        self._shown = shown
