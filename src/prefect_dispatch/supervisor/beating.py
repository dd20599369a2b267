"""Beating beside whatever a process does, so that nothing it waits for makes it look dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from prefect_dispatch.supervisor.beats import BEAT_EVERY, Heart
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.trouble import Tell, Trouble

_LOOK_SECONDS = BEAT_EVERY.total_seconds() / 3
"""Between two looks at whether it is time: a sleep that ends a moment early must not cost a whole beat."""


@contextlib.asynccontextmanager
async def beating(heart: Heart, clock: Clock, tell: Tell) -> AsyncIterator[None]:
    """Give signs of life in a task of its own, and take the last one away at the end.

    Args:
        heart: gives them.
        clock: the process's.
        tell: told of what keeps them from being given, once.
    """
    task = asyncio.create_task(_beat_on(heart, clock, tell))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(heart.stop)


async def _beat_on(heart: Heart, clock: Clock, tell: Tell) -> None:
    trouble = Trouble("no sign of life can be given")
    while True:
        try:
            await asyncio.to_thread(heart.beat)
            trouble.end(tell)
        except Exception as error:
            trouble.note(f"{type(error).__name__}: {error}", tell)
        await clock.sleep(_LOOK_SECONDS)
