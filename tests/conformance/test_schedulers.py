"""The conformance suite over every scheduler."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState, Observation
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.testing.local_laboratory import LocalLaboratory
from prefect_dispatch.testing.memory_case import MemoryCase
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scheduler_case import SchedulerCase
from prefect_dispatch.testing.scheduler_conformance import SchedulerConformance
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING, Shape
from prefect_dispatch.testing.scripted_answer import refuses
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler


class LocalCase:
    restarts_by_itself = False

    def __init__(self, folder: Path) -> None:
        self.laboratory = LocalLaboratory(folder)
        self.scheduler = self.another()

    def another(self) -> LocalScheduler:
        return self.laboratory.scheduler(slots=2)

    def exiting(self, code: int) -> SubmissionRequest:
        return self.laboratory.request("sh", "-c", f"exit {code}")

    def lasting(self) -> SubmissionRequest:
        return self.laboratory.request("sleep", "300")

    def impossible(self) -> SubmissionRequest:
        return self.laboratory.request("true", resources=Resources(nodes=2))

    async def submit_behind(self) -> ObjectRef:
        for _ in range(2):
            await self.scheduler.submit(self.lasting())
        return await self.scheduler.submit(self.lasting())

    async def preempt(self, object: ObjectRef) -> None:
        await self.scheduler.preempt(object)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        folder = self.laboratory.state_folder
        aside = folder.with_name("aside")
        folder.rename(aside)
        folder.touch()
        yield
        folder.unlink()
        aside.rename(folder)

    async def lose_node(self, object: ObjectRef) -> None:
        assert await self.scheduler.lose_node(object)

    async def wait_until(self, object: ObjectRef, state: ObjectState) -> Observation:
        return await self.laboratory.until_state(self.scheduler, object, state)


class ScriptedCase:
    """The test's part of the scripted scheduler: it starts and ends objects as time goes by."""

    def __init__(self, folder: Path, requeue: bool) -> None:
        self.folder = folder
        capabilities = SCRIPTED.model_copy(update={"requeue": requeue})
        seconds = itertools.count()
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.scheduler = ScriptedScheduler(lambda: start + timedelta(seconds=next(seconds)), capabilities)
        self.codes: dict[str, int] = {}
        self.restarts_by_itself = requeue

    def another(self) -> ScriptedScheduler:
        return self.scheduler

    def exiting(self, code: int) -> SubmissionRequest:
        request = plain_request(self.folder, "sh", "-c", f"exit {code}")
        self.codes[request.token] = code
        return request

    def lasting(self) -> SubmissionRequest:
        return plain_request(self.folder, "sleep", "300")

    def impossible(self) -> SubmissionRequest:
        self.scheduler.script_submit(refuses("resources.nodes 2: there is one node"))
        return self.lasting()

    async def submit_behind(self) -> ObjectRef:
        return await self.scheduler.submit(self.lasting())

    async def preempt(self, object: ObjectRef) -> None:
        (found,) = self.scheduler.objects(object.token)
        if found.restarts_allowed:
            self.scheduler.restart(object)
        elif not found.is_over:
            self.scheduler.end(object, Cause.PREEMPTED)

    async def wait_until(self, object: ObjectRef, state: ObjectState) -> Observation:
        observation = (await self.scheduler.observe([object]))[object]
        if observation.state is ObjectState.QUEUED and state is not ObjectState.QUEUED:
            self.scheduler.start(object)
        if observation.state is not ObjectState.ENDED and state is ObjectState.ENDED and object.token in self.codes:
            self.scheduler.end(object, exit=Exit(code=self.codes[object.token]))
        observation = (await self.scheduler.observe([object]))[object]
        assert observation.state is state
        return observation


class TestLocal(SchedulerConformance):
    @pytest.fixture
    async def case(self, tmp_path: Path) -> AsyncIterator[SchedulerCase]:
        case = LocalCase(tmp_path)
        yield case
        await case.laboratory.close()


@pytest.mark.parametrize("requeue", [True, False])
class TestScripted(SchedulerConformance):
    @pytest.fixture
    async def case(self, tmp_path: Path, requeue: bool) -> SchedulerCase:
        return ScriptedCase(tmp_path, requeue)


@pytest.mark.parametrize(
    "shape", [SLURM, SLURM_WITHOUT_ACCOUNTING, KUBERNETES], ids=["slurm", "slurmctld", "kubernetes"]
)
class TestMemory(SchedulerConformance):
    @pytest.fixture
    async def case(self, tmp_path: Path, shape: Shape) -> SchedulerCase:
        return MemoryCase(tmp_path, shape)
