"""A clock that stands until a test turns it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements :class:`~prefect_dispatch.supervisor.clock.Clock`. Sleeping turns it at once.

    Args:
        start: the wall time that it begins at, aware.
    """

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self._passed = timedelta(0)
        self._stepped = timedelta(0)

    def now(self) -> datetime:
        """The wall time."""
        return self._start + self._passed + self._stepped

    def monotonic(self) -> float:
        """Seconds since it was made."""
        return self._passed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Turn it on by that much, and let others run."""
        self.turn(timedelta(seconds=seconds))
        await asyncio.sleep(0)

    def step(self, by: timedelta) -> None:
        """Set the wall clock to another time, as an administrator does; no time passes."""
        self._stepped += by

    def turn(self, by: timedelta) -> None:
        """Turn it on."""
        self._passed += by
