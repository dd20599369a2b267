"""A flow run that carries a job looks at itself meanwhile: what people ask of it goes into the record."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client

from prefect_dispatch.errors import LineageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.supervisor.beating import beating
from prefect_dispatch.supervisor.beats import Heart
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.trouble import Trouble
from prefect_dispatch.tasks.wishes import record_wish

Log = logging.Logger | logging.LoggerAdapter[Any]
"""Where a run logs, or whoever stands for it."""
LOOK_WITHIN_SECONDS = 10.0
"""How long one look at the run may take."""
LOOK_EVERY_SECONDS = 30.0
"""Between two looks at the most, however seldom the scheduler is asked: people wait for what they ask of the run."""
MOST_FAULT = 300


class RunWatch:
    """Looks at its run beside the job, with one request at a time, and gives signs of life.

    Prefect tells a flow between two tasks at the soonest that it was suspended, and of a cancellation by a signal of
    its worker, if it has one that lives. A job is one long task, so its run looks itself. What it finds is a fact, on
    which the supervisor acts with its next step. An API that is away, or answers with what is no answer, holds nothing
    up: it is told once, and asked again. The signs of life wait for no look.

    Args:
        record: the lineage's, for this watch alone.
        run: the flow run.
        heart: tells that this process lives.
        clock: the clock.
        interval: seconds between two looks, if they are not too many.
        logger: the run's.
    """

    def __init__(self, record: Record, run: UUID, heart: Heart, clock: Clock, interval: float, logger: Log) -> None:
        self._record = record
        self._run = run
        self._heart = heart
        self._clock = clock
        self._interval = min(interval, LOOK_EVERY_SECONDS)
        self._logger = logger
        self._beside = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._beside.enter_async_context(beating(self._heart, self._clock, self._tell))
        looking = asyncio.create_task(self._look_on())

        async def end() -> None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

        self._beside.push_async_callback(end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._beside.aclose()

    async def _look_on(self) -> None:
        trouble = Trouble("what is asked of this run in Prefect cannot be seen")
        async with get_client() as client:
            while True:
                try:
                    await self._look(client)
                    trouble.end(self._tell)
                except Exception as error:
                    # Whatever it is, a proxy's page in place of an answer too: the next look may find something.
                    fault = " ".join(str(error).split())
                    trouble.note(printable(f"{type(error).__name__}: {fault}", MOST_FAULT), self._tell)
                await self._clock.sleep(self._interval)

    async def _look(self, client: PrefectClient) -> None:
        async with asyncio.timeout(LOOK_WITHIN_SECONDS):
            run = await client.read_flow_run(self._run)
        try:
            told = await asyncio.to_thread(record_wish, self._record, run)
        except LineageError as error:
            told = f"too late: {error}"
        if told:
            self._logger.info("%s", told, extra={"action": "run.wish"})

    def _tell(self, text: str) -> None:
        self._logger.warning("%s", text, extra={"action": "run.trouble"})
