"""A flow run that carries a job looks at itself meanwhile: what people ask of it goes into the record."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import ObjectNotFound

from prefect_dispatch.errors import DispatchError, LineageError
from prefect_dispatch.supervisor.beats import Heart
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.wishes import record_wish

LOOK_WITHIN_SECONDS = 10.0
"""How long one look at the run may take."""


class RunWatch:
    """Looks at its run beside the job, with one request at a time, and gives signs of life.

    Prefect tells a flow between two tasks at the soonest that it was suspended, and of a cancellation by a signal of
    its worker, if it has one that lives. A job is one long task, so its run looks itself. What it finds is a fact, on
    which the supervisor acts with its next step. An API that is away holds nothing up.

    Args:
        record: the lineage's, for this watch alone.
        run: the flow run.
        heart: tells that this process lives.
        clock: the clock.
        interval: seconds between two looks.
    """

    def __init__(self, record: Record, run: UUID, heart: Heart, clock: Clock, interval: float) -> None:
        self._record = record
        self._run = run
        self._heart = heart
        self._clock = clock
        self._interval = interval
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.to_thread(self._heart.stop)

    async def _look_on(self) -> None:
        async with get_client() as client:
            while True:
                await asyncio.to_thread(self._heart.beat)
                with contextlib.suppress(httpx.HTTPError, TimeoutError, ObjectNotFound, DispatchError, OSError):
                    await self._look(client)
                await self._clock.sleep(self._interval)

    async def _look(self, client: PrefectClient) -> None:
        async with asyncio.timeout(LOOK_WITHIN_SECONDS):
            run = await client.read_flow_run(self._run)
        try:
            told = await asyncio.to_thread(record_wish, self._record, run)
        except LineageError as error:
            told = f"too late: {error}"
        if told:
            get_run_logger().info("%s", told, extra={"action": "run.wish"})
