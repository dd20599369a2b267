"""Clocks that disagree: each process has its own, and an administrator may step it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from prefect_dispatch.testing.simulator.kernel import Kernel

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""What a clock that is right shows when a simulation begins."""


class SkewedClock:
    """One process's clocks. The wall clock is off and may be stepped; the monotonic one began anywhere.

    Args:
        kernel: knows the true time.
        offset: how many seconds the wall clock is ahead.
        started: what the monotonic clock showed when the simulation began.
    """

    def __init__(self, kernel: Kernel, offset: float = 0.0, started: float = 0.0) -> None:
        self._kernel = kernel
        self._started = started
        self.offset = offset

    def now(self) -> datetime:
        """The wall clock, as it is set."""
        return BEGIN + timedelta(seconds=self._kernel.now + self.offset)

    def monotonic(self) -> float:
        """Seconds that only rise."""
        return self._kernel.now + self._started

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)
