"""Flow runs that no worker takes, in states that a test sets, and a held lineage beside them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Running, Suspended

from prefect_dispatch.flows.poll_cessation import poll_cessation
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.flows.supersede import supersede
from prefect_dispatch.flows.supervise import supervise
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.tasks.supervise_runs import read_live_runs
from support.held_lineage import HeldLineage

FLOWS = {"supervise": supervise, "supersede": supersede}


def suspended() -> State[Any]:
    """As a person in the UI suspends a run."""
    return Suspended(timeout_seconds=3600)


class StrayRuns:
    """A held lineage ``digits`` on disk, and runs at a server.

    Args:
        folder: of the record.
        api: the server.
    """

    def __init__(self, folder: Path, api: str) -> None:
        self.root = str(folder)
        self._api = api
        self.lineage = HeldLineage(folder)

    def seen_from(self, api: str) -> StrayRuns:
        """The same lineage, for who looks at it with another server."""
        other = copy.copy(self)
        other._api = api
        return other

    async def deploy(self, name: str = "supervise") -> UUID:
        """Make the deployment that no worker serves; its id."""
        deployment: Any = await FLOWS[name].ato_deployment("without-a-worker")
        id: UUID = await deployment.aapply()
        return id

    def ask(self, question: Callable[[Any], Any]) -> Any:
        async def ask() -> Any:
            async with get_client() as client:
                return await question(client)

        with temporary_settings({PREFECT_API_URL: self._api}):
            return asyncio.run(ask())

    def job(self) -> dict[str, Any]:
        return {"lineage": "digits", "command": ["true"], "store": {"root": self.root}}

    def make(self, name: str = "supervise", *states: State[Any], tags: tuple[str, ...] = (), **fields: Any) -> str:
        """A run of a deployment that no worker serves; its id."""
        parameters: dict[str, Any] = {"job": self.job(), **({"lineage": "digits"} if name == "supersede" else {})}

        async def make(client: Any) -> str:
            id = await self.deploy(name)
            # Later than any worker looks ahead, should there be one.
            run = await client.create_flow_run_from_deployment(id, parameters=parameters, tags=tags, **fields)
            for state in (Running(), *states):
                await client.set_flow_run_state(run.id, state, force=True)
            return str(run.id)

        return self.ask(make)

    def make_foreign(
        self, name: str, *states: State[Any], tags: tuple[str, ...] = (), parameters: dict[str, Any] | None = None
    ) -> str:
        """A run of a flow of somebody else's, of any name."""

        @flow(name=name)
        def foreign(job: Any = None) -> None:
            return None

        async def make(client: Any) -> str:
            run = await client.create_flow_run(foreign, parameters=parameters or {}, name="theirs", tags=tags)
            for state in (Running(), *states):
                await client.set_flow_run_state(run.id, state, force=True)
            return str(run.id)

        return self.ask(make)

    def carry(self, run: str) -> None:
        record = self.lineage.record()
        record.refresh()
        record.append(CarriedBy(flow_run=run))

    def answer(self, run: str, key: str, text: str) -> None:
        """Store something as the answer to a question."""
        self.ask(lambda client: client.create_flow_run_input(flow_run_id=UUID(run), key=key, value=text))

    def run(self, id: str) -> FlowRun:
        return self.ask(lambda client: client.read_flow_run(id))

    def poll(self, signal: str | None = None) -> str:
        """Look once after the lineage's hold; what the poll's state says."""
        return self._poll([self.root], signal)

    def poll_all(self) -> str:
        """Look once after the holds of all stores that are known."""
        return self._poll(None, None)

    def _poll(self, stores: list[str] | None, signal: str | None) -> str:
        async def poll(_: Any) -> str:
            state = await poll_cessation(stores=stores, signal=signal, return_state=True)
            return str(state.message)

        return self.ask(poll)

    def reconcile(self, *runs: str, later: timedelta = timedelta(0)) -> tuple[list[str], list[str]]:
        """Look once, at these runs of all; what was done, and what could not be."""
        report = PollReport()

        class Clock(SystemClock):
            def now(self) -> Any:
                return super().now() + later

            async def sleep(self, seconds: float) -> None:
                return None

        async def look(client: Any) -> list[str]:
            live = [run for run in await read_live_runs(client) if str(run.id) in runs]
            work = Reconciling(client, "supervise/without-a-worker", Clock(), report)
            await work.add(self.root)
            await work.settle()
            await work.end_waiting(live)
            await work.mark_silent(live)
            return report.told

        return self.ask(look), report.troubles
