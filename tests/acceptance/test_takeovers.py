"""Runs that are started to take a job over: what people do to them, and what becomes of the job meanwhile."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Crashed, Running, Suspended

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.flows.supervise import supervise
from prefect_dispatch.model.facts import CarriedBy, Fact, StopRequested
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.beats import Heart
from prefect_dispatch.supervisor.carriers import settled_at
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.adoption import PAGE, TELL_AFTER, key_of
from support.reconciled import LaterClock

POOL = "nobody-works-here"
NAMED = "named"


class Lost:
    """A job that nobody carries: its first run has opened it and crashed, and no worker starts any other.

    Args:
        folder: where the record is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = str(folder / "runs")
        self.first = ""
        self.report = PollReport()

    @property
    def troubles(self) -> list[str]:
        """What the last look could not do."""
        return self.report.troubles

    async def begin(self, **first: Any) -> None:
        """Have the first run open the lineage, and crash before it says that it carries it."""
        own = await self.deploy("own")
        await self.deploy(NAMED)
        job = JobSpec.model_validate(
            {
                "lineage": "digits",
                "command": ["true"],
                "workdir": str(self._folder),
                "store": {"root": self.root},
                "workplace": str(self._folder / "workplaces"),
                "scheduler": {"type": "local", "state_folder": str(self._folder / "state")},
                "saves": {"kind": "marker"},
            }
        )
        async with get_client() as client:
            run = await client.create_flow_run_from_deployment(
                own, parameters={"job": job.model_dump(mode="json")}, **first
            )
            self.first = str(run.id)
            resolved = await resolve(job, self._folder)
            open_lineage(self.record(), resolved, plan_of(resolved), request=self.first)
            await self.set(self.first, Crashed())

    async def deploy(self, name: str) -> UUID:
        """Make a deployment of flow ``supervise`` that no worker serves."""
        async with get_client() as client:
            try:
                await client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
            except ObjectAlreadyExists:
                pass
        deployment: Any = await supervise.ato_deployment(name, work_pool_name=POOL)
        id: UUID = await deployment.aapply()
        return id

    async def look(self, *, later: bool = False) -> list[str]:
        """Reconcile once. Returns what was done."""
        self.report = PollReport()
        async with get_client() as client:
            clock = LaterClock(ahead=timedelta(hours=2)) if later else SystemClock()
            work = Reconciling(client, f"supervise/{NAMED}", clock, self.report)
            await work.add(self.root)
            await work.settle()
            return self.report.told

    async def mark_silent(self, run: str, waits: Callable[[], None]) -> list[str]:
        """Look later whether a run, which Prefect shows as live, has a process. Returns what was done."""
        self.report = PollReport()
        async with get_client() as client:
            work = Reconciling(client, f"supervise/{NAMED}", LaterClock(waits), self.report)
            await work.add(self.root)
            await work.settle()
            await work.mark_silent([await client.read_flow_run(UUID(run))])
            return self.report.told

    async def adopters(self) -> list[FlowRun]:
        """The runs that were started to take it over, oldest first."""
        async with get_client() as client:
            found = await client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=["adopter"])))
        own = [run for run in found if str(self._folder) in str(run.parameters)]
        return sorted(own, key=lambda run: run.created or run.state.timestamp)

    async def set(self, run: object, state: State[Any]) -> None:
        """Have a run be in a state."""
        async with get_client() as client:
            await client.set_flow_run_state(UUID(str(run)), state, force=True)

    def record(self) -> Record:
        return open_record(self.root, "digits", SystemClock())

    def append(self, fact: Fact) -> None:
        record = self.record()
        record.refresh()
        record.append(fact)

    def stops(self) -> list[StopRequested]:
        return [entry.fact for entry in self.record().entries() if isinstance(entry.fact, StopRequested)]


@pytest.fixture
def lost(tmp_path: Path, prefect_api: str) -> Iterator[Lost]:
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        yield Lost(tmp_path)


def test_who_cancels_a_run_that_is_to_take_a_job_over_stops_the_job(lost):
    async def story() -> None:
        # given a run that waits to take a job over
        await lost.begin()
        assert ["takes digits over" in text for text in await lost.look()] == [True]
        (adopter,) = await lost.adopters()
        # when a person cancels it, and one looks
        await lost.set(adopter.id, Cancelled())
        told = await lost.look()
        # then the job is stopped, and no other run takes it over
        (stop,) = lost.stops()
        assert (stop.intent, f"flow run {adopter.id} was cancelled" in stop.note) == ("abandon", True)
        assert (lost.record().refresh().finished.outcome, lost.troubles) == ("stopped", []), told
        assert [run.id for run in await lost.adopters()] == [adopter.id]

    asyncio.run(story())


@pytest.mark.parametrize("by", ["a person, of a run that was overtaken", "prefect"])
def test_a_run_that_is_cancelled_by_nobody_or_after_it_was_overtaken_is_followed_by_another(lost, by):
    async def story() -> None:
        # given a run that waits to take a job over
        await lost.begin()
        await lost.look()
        (adopter,) = await lost.adopters()
        # when somebody else carries the job for a while, or not; and it is cancelled
        if by == "prefect":
            await lost.set(
                adopter.id, Cancelled(message=f"Deployment {adopter.deployment_id} no longer exists, cancelled run.")
            )
        else:
            lost.append(CarriedBy(flow_run="process-7"))
            await lost.set(adopter.id, Cancelled())
        told = await lost.look(later=True)
        # then nobody has asked for the job's end, and another run takes it over
        assert (lost.stops(), lost.troubles) == ([], [])
        assert ["takes digits over" in text for text in told] == [True]
        assert len(await lost.adopters()) == 2

    asyncio.run(story())


def test_a_first_run_that_is_cancelled_before_it_says_that_it_carries_the_job_stops_it(lost):
    async def story() -> None:
        await lost.begin()
        await lost.set(lost.first, Cancelled())
        await lost.look()
        (stop,) = lost.stops()
        assert f"flow run {lost.first} was cancelled" in stop.note
        assert lost.record().refresh().finished.outcome == "stopped"
        assert await lost.adopters() == []

    asyncio.run(story())


@pytest.mark.parametrize("goes_on", [False, True], ids=["as suspended", "after it was resumed"])
def test_a_suspension_counts_though_a_worker_says_over_it_that_the_run_crashed(lost, goes_on):
    async def story() -> None:
        # given a run that a person suspends, and resumes or not; whose process dies, which its worker tells twice
        await lost.begin()
        states = [Suspended(timeout_seconds=300), *([Running()] if goes_on else []), Crashed(), Crashed()]
        for state in states:
            await lost.set(lost.first, state)
        # when one looks, twice
        await lost.look()
        await lost.look()
        # then the job waits for the person if they have not taken it back, and a run takes it over
        assert [stop.intent for stop in lost.stops()] == ([] if goes_on else ["suspend"])
        assert (lost.record().refresh().hold is None) is goes_on
        assert (len(await lost.adopters()), lost.troubles) == (1, [])

    asyncio.run(story())


@pytest.mark.parametrize("known", [True, False], ids=["named", "no other"])
def test_a_job_whose_deployment_was_deleted_goes_on_from_the_one_that_is_named(lost, known):
    async def story() -> None:
        # given
        await lost.begin()
        async with get_client() as client:
            run = await client.read_flow_run(UUID(lost.first))
            assert run.deployment_id is not None
            await client.delete_deployment(run.deployment_id)
            if not known:
                await client.delete_deployment((await client.read_deployment_by_name(f"supervise/{NAMED}")).id)
        # when
        told = await lost.look()
        # then
        adopters = await lost.adopters()
        if known:
            assert (lost.troubles, ["takes digits over" in text for text in told]) == ([], [True])
            assert [each.deployment_id for each in adopters] == [await lost.deploy(NAMED)]
        else:
            text = f"digits: there is no deployment 'supervise/{NAMED}' to start a run from; deploy flow supervise"
            assert (lost.troubles, adopters) == ([text], [])

    asyncio.run(story())


@pytest.mark.parametrize("count", [TELL_AFTER - 1, 50, PAGE + 1])
def test_runs_that_take_over_in_vain_are_followed_without_end_and_told_of(lost, count):
    async def story() -> None:
        # given a job that many runs were to take over, and all failed
        await lost.begin()
        record = lost.record()
        seq = settled_at(record.entries())
        async with get_client() as client:
            flow = str((await client.read_flow_run(UUID(lost.first))).flow_id)
            for number in range(count):
                run = {"idempotency_key": key_of(record.id(), seq, number), "flow_id": flow}
                failed = {"type": "FAILED", "name": "Failed", "message": "a block is missing"}
                made = await client.request("POST", "/flow_runs/", json={**run, "state": failed})
            last = made.json()["id"]
        # when one looks before and after the next one is due
        early = await lost.look()
        troubles = lost.troubles
        told = await lost.look(later=True)
        # then there is another run, and somebody is told that they keep failing
        assert early == []
        assert ["takes digits over" in text for text in told] == [True]
        assert [run.idempotency_key for run in await lost.adopters()] == [key_of(record.id(), seq, count)]
        words = f"digits: {count} runs that were to take it over came to nothing, the last is {last}, Failed: a block"
        assert [text.startswith(words) for text in troubles] == ([True] if count >= TELL_AFTER else [])

    asyncio.run(story())


def test_a_record_that_moves_gets_no_second_run_while_the_first_is_on_its_way(lost):
    async def story() -> None:
        # given a run that waits to take a job over
        await lost.begin()
        await lost.look()
        # when the record moves without it, and one looks again
        lost.append(StopRequested(intent="suspend", who="ada"))
        assert await lost.look() == []
        seq = settled_at(lost.record().entries())
        again = await lost.look()
        # then it has the record held, and no other run is started
        (adopter,) = await lost.adopters()
        assert (again, lost.troubles, lost.record().refresh().hold is not None) == ([], [], True)
        assert adopter.idempotency_key != key_of(lost.record().id(), seq, 0)
        # when that one's process dies before it says that it carries the job, and nobody tells Prefect
        await lost.set(adopter.id, Running())
        assert await lost.look() == []
        told = await lost.look(later=True)
        # then another one takes its place
        assert [f"flow run {adopter.id} has crashed" in told[0], "takes digits over" in told[1]] == [True, True]
        assert len(await lost.adopters()) == 2

    asyncio.run(story())


def test_a_silent_run_may_be_deleted_while_another_sign_of_life_is_waited_for(lost):
    async def story() -> None:
        # given a run that seems to run, without a process, and whose job another one carries
        await lost.begin()
        lost.append(CarriedBy(flow_run=f"process-{uuid4()}"))
        Heart(lost.root, "digits", lost.record().refresh().carried_by, LaterClock()).beat()
        await lost.set(lost.first, Running())

        def delete() -> None:
            request = urllib.request.Request(f"{PREFECT_API_URL.value()}/flow_runs/{lost.first}", method="DELETE")
            urllib.request.urlopen(request, timeout=60).close()

        # when it is deleted meanwhile
        told = await lost.mark_silent(lost.first, delete)
        # then there is nothing to be marked, and nothing to be told of
        assert (told, lost.troubles) == ([], [])

    asyncio.run(story())


@pytest.mark.parametrize("there", [True, False], ids=["same deployment", "another one"])
def test_a_run_that_takes_over_has_the_tags_and_the_variables_of_the_one_before(lost, there):
    async def story() -> None:
        # given a run with an environment and a tag of its own
        await lost.begin(
            tags=["team:physics", "held"], job_variables={"env": {"TEAM": "physics"}, "stream_output": False}
        )
        async with get_client() as client:
            run = await client.read_flow_run(UUID(lost.first))
            if not there:
                assert run.deployment_id is not None
                await client.delete_deployment(run.deployment_id)
        # when another run takes its job over
        await lost.look()
        # then it has them too
        (adopter,) = await lost.adopters()
        assert set(adopter.tags) == {"team:physics", "adopter", "lineage:digits", "generation:0"}
        assert adopter.job_variables == {"env": {"TEAM": "physics"}, **({"stream_output": False} if there else {})}

    asyncio.run(story())
