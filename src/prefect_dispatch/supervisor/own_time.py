"""Waiting by this process's own monotonic clock: no wait ends early or late because a host's wall clock is wrong."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta

from prefect_dispatch.model.state import Execution, LineageState, SubmissionState
from prefect_dispatch.supervisor.clock import Clock


class OwnTime:
    """When this process first saw what a record tells, on a time line that only rises.

    The times in a record are those of other hosts, and this host's own clock may be wrong too. So each wait that
    follows from a fact is counted from when this process first saw that fact. Whoever takes a lineage over waits anew,
    which costs time and is never a wrong step.

    Args:
        clock: the clock; its wall time is taken once, as the beginning of the time line.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now(), clock.monotonic()
        self._seen: dict[Hashable, datetime] = {}

    def now(self) -> datetime:
        """Where the time line is."""
        wall, monotonic = self._began
        return wall + timedelta(seconds=self._clock.monotonic() - monotonic)

    def seen(self, what: Hashable) -> datetime:
        """When this was asked for first."""
        return self._seen.setdefault(what, self.now())

    def forget(self, what: Hashable) -> None:
        """It holds no more; if it comes again, it is new."""
        self._seen.pop(what, None)

    def wall(self, at: datetime) -> datetime:
        """A moment of the time line as the wall clock will show it."""
        return self._clock.now() + (at - self.now())

    def of(self, state: LineageState) -> LineageState:
        """A state whose times that something waits from are those of this time line."""
        newest = state.newest
        if newest is not None:
            state = state.model_copy(update={"submissions": (*state.submissions[:-1], self._of_submission(newest))})
        if state.not_before is not None:
            # By the number of ends, not by a time: clocks of several hosts can give two delays the same end.
            since = self.seen(("delay", state.generation, sum(state.spent.values())))
            state = state.model_copy(update={"not_before": since + state.delay})
        return state

    def _of_submission(self, submission: SubmissionState) -> SubmissionState:
        key = (submission.generation, submission.n)
        update: dict[str, object] = {
            "executions": tuple(self._of_execution(key, execution) for execution in submission.executions)
        }
        if submission.requeueing_at is not None:
            update["requeueing_at"] = self.seen(("requeueing", *key, submission.requeueing))
        return submission.model_copy(update=update)

    def _of_execution(self, key: tuple[int, int], execution: Execution) -> Execution:
        update = {"since": self.seen(("state", *key, execution.restart, execution.state, execution.since))}
        if execution.ended_at is not None:
            update["ended_at"] = self.seen(("end", *key, execution.restart))
        return execution.model_copy(update=update)
