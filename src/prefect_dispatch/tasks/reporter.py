"""Reports are for people: they are made beside the job, and a server that is away never holds it up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from prefect import get_run_logger

PATIENCE_SECONDS = 30.0
"""How long one report may take."""
LAST_PATIENCE_SECONDS = 15.0
"""How long the end of a run waits for the reports that are still under way."""


class Reporter:
    """Makes reports one after the other in the background, in the context of whoever asks for them."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}
        # It is given to who waits longest: two reports of one thing must not both find that it was not made yet.
        self._turn = asyncio.Lock()

    def soon(self, name: str, report: Coroutine[Any, Any, Any]) -> None:
        """Have a report made; one that is asked for while one of its name is under way or waits is left out."""
        under_way = self._running.get(name)
        if under_way is not None and not under_way.done():
            report.close()
            return
        self._running[name] = asyncio.create_task(self._make(name, report))

    async def finish(self) -> None:
        """Wait for what is under way, but not for long."""
        if self._running:
            _, late = await asyncio.wait(self._running.values(), timeout=LAST_PATIENCE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _make(self, name: str, report: Coroutine[Any, Any, Any]) -> None:
        try:
            async with self._turn, asyncio.timeout(PATIENCE_SECONDS):
                await report
        except Exception as error:
            get_run_logger().warning(
                "report %s could not be made: %s", name, str(error) or "no answer", extra={"action": "report.failed"}
            )
        finally:
            # One that never had its turn would be told of as forgotten.
            report.close()
