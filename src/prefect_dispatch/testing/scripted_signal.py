"""A cessation signal that says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject


class ScriptedSignal:
    """Implements :class:`~prefect_dispatch.schedulers.cessation.CessationSignal`.

    Args:
        answer: what it says of everything; an error is raised instead.
        takes_seconds: how long it takes, by the loop's clock.
        meanwhile: called while it is being asked, for what happens in between.

    Attributes:
        asked: what it was asked about, in order.
        most_at_once: how many questions were open at one moment at most.
    """

    def __init__(
        self,
        answer: CessationAnswer | Exception,
        *,
        takes_seconds: float = 0.0,
        meanwhile: Callable[[EndedObject], Awaitable[None]] | None = None,
    ) -> None:
        self.answer = answer
        self.asked: list[EndedObject] = []
        self.most_at_once = 0
        self._takes_seconds = takes_seconds
        self._meanwhile = meanwhile
        self._open = 0

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """See the port."""
        self.asked.append(ended)
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        try:
            if self._meanwhile is not None:
                await self._meanwhile(ended)
            await asyncio.sleep(self._takes_seconds)
        finally:
            self._open -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
