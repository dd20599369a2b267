"""What a Prefect server has to know before jobs can be started from its UI: deployments, default blocks, an automation.

What is there already is a person's, and stays as it is: schedules, parameters, tags and limits of a deployment, blocks
and automations. Done twice it changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.blocks.core import Block
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentUpdate, GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitConfig, StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.schedules import Cron, Interval, Schedule
from prefect.states import Crashed
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.callables import parameter_schema

from prefect_dispatch.blocks import CheckpointStore, CommandSignal, LocalScheduler, SlurmScheduler
from prefect_dispatch.errors import UsageError
from prefect_dispatch.stores.opening import is_url

DEFAULT = "default"
"""The name of the blocks that a job means which names none."""
PAGE = 200


@dataclass(frozen=True)
class Served:
    """What is served.

    Attributes:
        pools: the work pools from which its runs are to be taken; there is one unless a person has moved deployments.
        deployments: their names, as ``flow/deployment``, with their ids.
        notes: what a person should know.
    """

    pools: tuple[str, ...]
    deployments: dict[str, UUID]
    notes: tuple[str, ...]

    @property
    def pollers(self) -> list[UUID]:
        """The deployments that a schedule starts again and again, and that look at everything each time."""
        return [self.deployments["poll-cessation/poll-cessation"], self.deployments["reconcile/reconcile"]]


def shipped(name: str) -> Path:
    """A file of ``deployments/``: beside this package where it was installed, else in the repository.

    Raises:
        UsageError: it is in neither.
    """
    package = Path(__file__).parents[1]
    for place in (package / "deployments", package.parents[1] / "deployments"):
        if (place / name).is_file():
            return place / name
    raise UsageError(f"{name} is neither in {package / 'deployments'} nor in the repository; install again")


async def serve_deployments(client: PrefectClient, folder: Path) -> Served:
    """Make the deployments of ``deployments/prefect.yaml``, and the work pool that they are in.

    Args:
        client: Prefect.
        folder: what relative places of a job from the UI are relative to.
    """
    document = yaml.safe_load(await asyncio.to_thread(shipped("prefect.yaml").read_text))
    ids: dict[str, UUID] = {}
    pools: list[str] = []
    notes: list[str] = []
    for entry in document["deployments"]:
        own = str(entry["work_pool"]["name"])
        deployment = await _deployment(entry, own, folder)
        pool, id = await _apply(client, deployment, own)
        ids[f"{deployment.flow_name}/{deployment.name}"] = id
        if pool != own:
            notes.append(
                f"deployment {deployment.flow_name}/{deployment.name} is in the work pool {pool or 'none'}, "
                "where somebody has put it; its runs are started by that pool's workers and not here"
            )
        elif own not in pools:
            pools.append(own)
    return Served(tuple(pools), ids, tuple(notes))


async def _deployment(entry: dict[str, Any], pool: str, folder: Path) -> RunnerDeployment:
    flow: Flow[..., Any] = await asyncio.to_thread(load_flow_from_entrypoint, entry["entrypoint"])
    limit = entry.get("concurrency_limit")
    making: Any = flow.ato_deployment(
        entry["name"],
        description=entry["description"],
        tags=entry["tags"],
        parameters=entry.get("parameters", {}),
        schedules=[_schedule(each) for each in entry.get("schedules", ())],
        concurrency_limit=ConcurrencyLimitConfig.model_validate(limit) if limit else None,
        work_pool_name=pool,
        job_variables={"working_dir": str(folder)},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    deployment: RunnerDeployment = await making
    return deployment


def _schedule(entry: dict[str, Any]) -> Schedule:
    if "interval" in entry:
        return Interval(entry["interval"], active=entry["active"])
    return Cron(entry["cron"], timezone=entry["timezone"], active=entry["active"])


async def _apply(client: PrefectClient, deployment: RunnerDeployment, pool: str) -> tuple[str | None, UUID]:
    """Make a deployment, or have the one that is there run this version of its flow. Returns its pool and its id."""
    try:
        await client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    except ObjectAlreadyExists:
        pass
    try:
        there = await client.read_deployment_by_name(f"{deployment.flow_name}/{deployment.name}")
    except ObjectNotFound:
        applying: Any = deployment.aapply()
        id: UUID = await applying
        return pool, id
    if there.work_pool_name == pool:
        flow: Flow[..., Any] = await asyncio.to_thread(load_flow_from_entrypoint, str(deployment.entrypoint))
        changes = DeploymentUpdate(
            version=deployment.version,
            description=deployment.description,
            entrypoint=deployment.entrypoint,
            job_variables={**(there.job_variables or {}), **deployment.job_variables},
            parameter_openapi_schema=parameter_schema(flow).model_dump(exclude_unset=True),
        )
        await client.update_deployment(there.id, changes)
    return there.work_pool_name, there.id


async def forget_missed(client: PrefectClient, pollers: Sequence[UUID]) -> int:
    """Delete the runs of pollers that were due while nobody took them: one look at everything makes up for all."""
    chosen = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=FlowRunFilterExpectedStartTime.model_validate({"before_": datetime.now(UTC)}),
    )
    missed = DeploymentFilter(id=DeploymentFilterId(any_=list(pollers)))
    deleted = 0
    while page := await client.read_flow_runs(deployment_filter=missed, flow_run_filter=chosen, limit=PAGE):
        for run in page:
            try:
                await client.delete_flow_run(run.id)
            except ObjectNotFound:
                continue
        deleted += len(page)
    return deleted


async def release_runs(client: PrefectClient, deployments: Sequence[UUID], dead_for: timedelta) -> int:
    """Mark runs as crashed whose processes are gone: a poller's would keep the one slot, and no other would run.

    A worker that ends leaves those behind that it was about to start; and a server that is started again has forgotten
    to whom it has given slots. Should one live all the same, two look at the same time, which any number may.

    Args:
        client: Prefect.
        deployments: theirs.
        dead_for: how long a run must have been in its state.

    Returns:
        How many.
    """
    types = [StateType.PENDING, StateType.RUNNING]
    chosen = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types)))
    released = 0
    for poller in deployments:
        own = DeploymentFilter(id=DeploymentFilterId(any_=[poller]))
        runs = await client.read_flow_runs(deployment_filter=own, flow_run_filter=chosen, limit=PAGE)
        dead = [run for run in runs if run.state and datetime.now(UTC) - run.state.timestamp >= dead_for]
        for run in dead:
            crashed: Any = Crashed(message="whoever was to run it has ended")
            await client.set_flow_run_state(run.id, crashed, force=True)
        released += len(dead)
        limit = (await client.read_deployment(poller)).global_concurrency_limit
        if len(dead) == len(runs) and limit is not None and limit.active_slots:
            await client.update_global_concurrency_limit(limit.name, GlobalConcurrencyLimitUpdate(active_slots=0))
    return released


async def make_blocks(store: str, named: bool) -> str:
    """Make the types of our blocks known, and the blocks that a job means which names none.

    Args:
        store: the place for saves and records, where there is no such block yet.
        named: whether a person has asked for this very folder.

    Returns:
        Where saves and records go.

    Raises:
        UsageError: the block is there, and is of another place than the one that was asked for.
    """
    for kind in (CheckpointStore, LocalScheduler, SlurmScheduler, CommandSignal):
        registering: Any = kind.aregister_type_and_schema()
        await registering
    await _block(LocalScheduler, {})
    block = await _block(CheckpointStore, {"root": store})
    root = str(getattr(block, "root", ""))
    if named and root != store:
        raise UsageError(
            f"the Prefect block checkpoint-store/{DEFAULT} is of {root}, not of {store}; leave --store out, or change "
            "the block in the UI"
        )
    return root


async def _block(kind: type[Block], values: dict[str, Any]) -> Block:
    """The default block of a kind, made where there is none."""
    loading: Any = kind.aload(DEFAULT)
    try:
        there: Block = await loading
    except ValueError:
        there = kind(**values)
        if isinstance(there, CheckpointStore) and not is_url(there.root):
            # A root that is not there looks to pollers like one whose file system is not mounted.
            await asyncio.to_thread(Path(there.root).mkdir, parents=True, exist_ok=True)
        saving: Any = there.asave(DEFAULT)
        await saving
    return there


async def make_automation(client: PrefectClient, notify: str | None) -> bool:
    """Make the example automation, which tells of a hold: by a notification block, else switched off and without one.

    Args:
        client: Prefect.
        notify: the block, as ``TYPE/NAME``; None for none.

    Returns:
        Whether it is switched on.

    Raises:
        UsageError: there is no such block.
    """
    document = yaml.safe_load(await asyncio.to_thread(shipped("automation-held.yaml").read_text))
    there = await client.read_automations_by_name(document["name"])
    if there and notify is None:
        return there[0].enabled
    if notify is None:
        document |= {"enabled": False, "actions": [{"type": "do-nothing"}]}
    else:
        for action in document["actions"]:
            action["block_document_id"] = str(await _document(client, notify))
    automation = AutomationCore.model_validate(document)
    if there:
        await client.update_automation(there[0].id, automation)
    else:
        await client.create_automation(automation)
    return automation.enabled


async def _document(client: PrefectClient, reference: str) -> UUID:
    slug, _, name = reference.partition("/")
    try:
        return (await client.read_block_document_by_name(name, slug)).id
    except ObjectNotFound:
        raise UsageError(
            f"Prefect has no notification block {reference!r}; prefect block ls shows those there are, as TYPE/NAME"
        ) from None


async def start_reconcile(client: PrefectClient, served: Served) -> None:
    """Have what was in flight taken up at once, and not with the next minute."""
    await client.create_flow_run_from_deployment(served.deployments["reconcile/reconcile"], name="reconcile")
