"""The clock that supervisors are given, so that tests and simulations can turn it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The one that counts on through a suspend of the machine, where there is one (clock_gettime(2))."""


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def now(self) -> datetime:
        """The wall clock, aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that only rise, on this process alone, also while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall clock in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking other tasks."""
        await asyncio.sleep(seconds)
