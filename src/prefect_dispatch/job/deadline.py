"""The total deadline inside an execution: a clock that nobody can set back, and how much of the time is left."""

from __future__ import annotations

import time

from prefect_dispatch.errors import DeadlinePassed
from prefect_dispatch.format.deadline import TERMINATE_AT, DeadlineTerms, TotalDeadline, without_code
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.stores.deadline import agree_on_deadline, first_claim, greatest_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Callable, Mapping, Optional

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


class Deadline:
    """The total deadline of one execution's generation.

    Args:
        terms: what the submission says of it.
        clock: injected by tests; the machine's clocks, and what the submission knows, where left out.
    """

    def __init__(self, terms: DeadlineTerms, clock: Optional[DeadlineClock] = None) -> None:
        self._terms = terms
        self._clock = clock or DeadlineClock(terms.now)
        self._clock.learn(terms.now)
        self._total: Optional[TotalDeadline] = None

    @property
    def margin(self) -> timedelta:
        """How long before it the program is asked to save."""
        return self._terms.margin

    @property
    def terminate_at(self) -> float:
        """How many seconds before it the program gets SIGTERM."""
        return TERMINATE_AT.total_seconds()

    @property
    def ends_at(self) -> Optional[float]:
        """When it passes, in seconds since 1970; None before :meth:`settle`."""
        return None if self._total is None else self._total.ends_at

    def now(self) -> float:
        """Now, in seconds since 1970; never less than before."""
        return self._clock.now()

    def look(self, store: Store, generation: int) -> None:
        """Learn from the root what time it was when somebody of this generation last wrote; before the claim."""
        self._clock.learn(greatest_time(store, generation))

    def settle(
        self, store: Store, lineage: str, generation: int, attempt: str, identity: Mapping[str, str]
    ) -> TotalDeadline:
        """Write the deadline down, or learn the one that counts; after the claim.

        Raises:
            MalformedDocument: what is written down is none, or another one.
            StoreError: the store failed.
        """
        began_at = self._terms.opened_at
        if began_at is None:
            first = first_claim(store, generation)
            began_at = self.now() if first is None else first
        budget = self._terms.budget.total_seconds()
        wanted = TotalDeadline(lineage, generation, attempt, began_at, budget, without_code(identity))
        self._total = agree_on_deadline(store, wanted)
        self._clock.learn(self._total.began_at)
        return self._total

    def left(self) -> float:
        """Seconds until it passes; negative afterwards."""
        return float("inf") if self._total is None else self._total.ends_at - self.now()

    def is_near(self) -> bool:
        """Whether no more than the margin is left."""
        return self.left() <= self.margin.total_seconds()

    def until_next(self) -> float:
        """Seconds until something is due: the notice, SIGTERM, or the end."""
        left = self.left()
        for due in (self.margin.total_seconds(), TERMINATE_AT.total_seconds()):
            if left > due:
                return left - due
        return max(0.0, left)

    def require_time(self) -> None:
        """Make sure that something may still be started.

        Raises:
            DeadlinePassed: no more than the margin is left.
        """
        left = self.left()
        if not self.is_near():
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.ends_at))
        margin = describe_duration(self.margin)
        how = "has passed" if left <= 0 else f"is in {left:.0f}s, and within its margin of {margin} nothing is started"
        raise DeadlinePassed(f"the total deadline {at} {how}; a job that is to go on supersedes this one")
