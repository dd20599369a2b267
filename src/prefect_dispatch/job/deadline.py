"""The total deadline inside an execution: a clock that nobody can set back, and how much of the time is left."""

from __future__ import annotations

import time
from datetime import timedelta

from prefect_dispatch.errors import DeadlinePassed
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.deadline import TERMINATE_BEFORE, describe_time
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.stores.deadline import agree_on_deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from prefect_dispatch.format.deadline import DeadlineTerms, TotalDeadline
    from prefect_dispatch.stores.port import Store


def elapsed() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine is suspended (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DeadlineClock:
    """Now, as far as deadlines go: the greatest of all that tells it, so that it never goes back.

    Args:
        known: a time that is over for certain, in seconds since 1970.
        wall: the wall clock.
        elapsed: a clock that only rises, also while the machine is suspended.
    """

    def __init__(
        self, known: float, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = elapsed
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        # One value, so that two threads never see half of it.
        self._anchor = (max(known, wall()), elapsed())

    def learn(self, known: float) -> None:
        """Take in a time that is over for certain."""
        now = self._elapsed()
        at, since = self._anchor
        self._anchor = (max(known, at + now - since), now)

    def now(self) -> float:
        """Seconds since 1970; never less than before."""
        elapsed = self._elapsed()
        at, since = self._anchor
        wall, counted = self._wall(), at + elapsed - since
        if wall > counted:
            self._anchor = (wall, elapsed)
            return wall
        return counted


@dataclass(frozen=True)
class Deadline:
    """The total deadline of one execution's generation, as it is written down.

    Args:
        ends_at: when it passes, in seconds since 1970.
        margin: how long before it the program is asked to save.
        clock: tells how much is left.
    """

    ends_at: float
    margin: timedelta
    clock: DeadlineClock

    @property
    def terminate_before(self) -> float:
        """How many seconds before it the program gets SIGTERM."""
        return TERMINATE_BEFORE.total_seconds()

    def left(self) -> float:
        """Seconds until it passes; negative afterwards."""
        return self.ends_at - self.clock.now()

    def leaves_no_time(self) -> bool:
        """Whether nothing may be started any more: no more than the margin is left."""
        return self.left() <= self.margin.total_seconds()

    def until_next(self) -> float:
        """Seconds until something is due: the notice, SIGTERM, or the end."""
        left = self.left()
        for due in (self.margin.total_seconds(), self.terminate_before):
            if left > due:
                return left - due
        return max(0.0, left)

    def require_time(self) -> None:
        """Make sure that something may still be started.

        Raises:
            DeadlinePassed: no more than the margin is left.
        """
        left = self.left()
        if not self.leaves_no_time():
            return
        margin = describe_duration(self.margin)
        how = "has passed" if left <= 0 else f"is in {left:.0f}s, and within its margin of {margin} nothing is started"
        raise DeadlinePassed(
            f"the total deadline {describe_time(self.ends_at)} {how}; a job that is to go on supersedes this one"
        )

    def __str__(self) -> str:
        return f"{describe_time(self.ends_at)}, in {describe_duration(timedelta(seconds=self.left()))}"


def settle(store: Store, terms: DeadlineTerms, clock: DeadlineClock, wanted: TotalDeadline) -> Deadline:
    """Write the deadline down, or learn the one that counts; after the claim.

    Args:
        store: the lineage's root.
        terms: what the submission says of it.
        clock: tells how much is left; it learns when the deadline began.
        wanted: as it would be if this execution were the first one. What is written down does not begin later.

    Raises:
        MalformedDocument: what is written down is none, or another one.
        StoreError: the store failed.
    """
    counts = agree_on_deadline(store, wanted)
    # Of two that claimed side by side the later one may have written it, without knowing of the other.
    began_at = min(counts.began_at, wanted.began_at)
    clock.learn(began_at)
    return Deadline(began_at + counts.budget_seconds, terms.margin, clock)
