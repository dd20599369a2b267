"""The flow that carries one job from its opening to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import flow, get_run_logger, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound, Pause
from prefect.states import Cancelled, Completed, Failed

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.flows.cancelled import stop_cancelled
from prefect_dispatch.flows.holding import Holding, ending_when_held
from prefect_dispatch.model.facts import CarriedBy, Outcome
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.beats import Heart
from prefect_dispatch.supervisor.carriers import carried_generation
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import Happening, JobHeld, JobOver, JobSuperseded, TakenOver
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.adoption import ADOPTER_TAG
from prefect_dispatch.tasks.end_state import EndState
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.execute import execute, retries_for
from prefect_dispatch.tasks.held_run import dress, generation_of, generation_tag, lineage_tag
from prefect_dispatch.tasks.naming import named, present_run, run_name
from prefect_dispatch.tasks.refusal import refused
from prefect_dispatch.tasks.reporter import Reporter
from prefect_dispatch.tasks.reports import report_plan
from prefect_dispatch.tasks.resuming import superseded_words
from prefect_dispatch.tasks.run_watch import Log, RunWatch

_told: ContextVar[int | None] = ContextVar("told", default=None)
"""The generation that the caller of :func:`carry` has opened."""


@flow(
    name="supervise",
    flow_run_name=run_name,
    on_cancellation=[stop_cancelled],
    persist_result=False,
    validate_parameters=True,
)
async def supervise(job: JobSpec) -> State[Any]:
    """Run one long, preemptible job to its end: submit it, watch it, run it again by its rules, or hold it.

    Started again for the same lineage, it takes up where the record stands: a killed run loses nothing.

    Args:
        job: the job. Relative places are relative to the folder that this flow runs in.

    Returns:
        Completed when the program exited 0; Failed when a rule said so; Cancelled named ``Stopped`` when a person
        stopped it, ``HandedOver`` when another run of this flow has taken the lineage over, ``Superseded`` when another
        job took the place of this one. Where a person must decide,
        a run of a deployment is suspended with a form, and any other waits as a process; Failed named ``Held`` with
        the reason only where nobody could answer.

    Raises:
        SpecError: the spec asks for what is not there. The run is Failed, named ``Refused``, and says so in one line.
        LineageError: the lineage is finished, or open with another spec; likewise.
    """
    try:
        return await _supervise(named(job, present_run()))
    except DispatchError as error:
        return refused(error)


async def _supervise(job: JobSpec) -> State[Any]:
    resolved = await resolve(job, Path.cwd())
    carrier = flow_run_id()
    planned = await asyncio.to_thread(plan_of, resolved)
    record = open_record(resolved.record_root, resolved.spec.lineage, SystemClock())
    meant = await asyncio.to_thread(meant_generation, record, carrier)
    state = await asyncio.to_thread(lambda: open_lineage(record, resolved, planned, meant=meant, request=carrier or ""))
    over = over_already(state, meant)
    if over is not None:
        return final_state(over)
    return await carry_on(record, state, planned, carrier)


async def carry_on(record: Record, state: LineageState, planned: Plan, carrier: str | None) -> State[Any]:
    """Carry a generation from where its record stands to its end, in the name of a flow run.

    Args:
        record: the lineage's.
        state: its state; the generation in it is the one that is carried, and no later one.
        planned: its plan.
        carrier: the flow run; None outside of one.
    """
    logger, clock, reporter, lineage = get_run_logger(), SystemClock(), Reporter(), record.lineage
    generation = state.generation
    supervisor = await asyncio.to_thread(supervisor_of, record, state, clock)
    announcer = Announcer(lineage, await asyncio.to_thread(record.id))
    holding = Holding(record, supervisor, UUID(carrier) if carrier is not None else None, announcer)
    if carrier is not None:
        state = await supervisor.append(CarriedBy(flow_run=carrier), logger.warning)
        reporter.soon("tags", _dress_run(carrier, lineage, state.generation))
        await holding.take_up(state)
    logger.info(
        "lineage %s is at fact %d of %s", lineage, state.seq, record.location, extra={"action": "lineage.taken_up"}
    )
    reporter.soon("plan", report_plan(lineage, planned, state.opened.identity if state.opened else {}))
    async with contextlib.AsyncExitStack() as beside:
        if carrier is not None:
            await beside.enter_async_context(_watch(state, carrier, supervisor, logger))
        beside.enter_context(tags(lineage_tag(lineage), generation_tag(state.generation)))
        try:
            happening = await _execute(supervisor, carrier, reporter, announcer)
            while isinstance(happening, JobHeld):
                await reporter.finish()
                if not await holding.wait():
                    break
                happening = await _execute(supervisor, carrier, reporter, announcer)
        except Pause:
            # Prefect ends a run that a person has suspended wherever it comes by, as at the end of a task.
            await reporter.finish()
            over = let_go(await supervisor.read(), generation, carrier)
            if over is None:
                await holding.leave()
                raise
            happening = over
    await reporter.finish()
    final = final_state(happening, holding.told)
    if carrier is not None and not isinstance(happening, JobHeld):
        await _end_if_suspended(UUID(carrier), final)
    return final


def _watch(state: LineageState, carrier: str, supervisor: Supervisor, logger: Log) -> RunWatch:
    """What looks at this run beside the job; it has a record of its own, since both read at their own times."""
    assert state.opened is not None
    lineage, root, clock = supervisor.lineage, state.opened.record_root, supervisor.clock
    interval = supervisor.capabilities.poll_interval.total_seconds()
    heart = Heart(root, lineage, carrier, clock)
    return RunWatch(open_record(root, lineage, clock), UUID(carrier), heart, clock, interval, logger)


async def _execute(supervisor: Supervisor, carrier: str | None, reporter: Reporter, announcer: Announcer) -> Happening:
    """Run task ``execute``. Its state is for people: what it came to stands in it whether it says failed or not."""
    retried = execute.with_options(retries=retries_for(await supervisor.read()))
    # The two type checkers disagree on what a task returns that is asked for its state.
    running: Any = retried(supervisor, carrier, reporter, announcer, return_state=True)
    happening = await (await running).aresult(raise_on_failure=False)
    if isinstance(happening, BaseException):
        raise happening
    result: Happening = happening
    return result


async def carry(job: JobSpec, generation: int | None = None) -> State[Any]:
    """Run :func:`supervise` as a function that ends when the job is held; its state tells what went wrong.

    Args:
        job: the job.
        generation: the generation that was opened for it, and is to be carried; None where the flow is to open it.
    """
    # The two type checkers disagree on what a flow returns that is asked for its state.
    with ending_when_held(), _meaning(generation):
        running: Any = supervise(job, return_state=True)
        state: State[Any] = await running
    return state


def meant_generation(record: Record, carrier: str | None) -> int | None:
    """The generation that this run is to carry, and no other: one that it carried or opened, or was started for.

    None for a run that begins, and takes what there is or opens it.
    """
    carried = carried_generation(record.entries(), carrier) if carrier is not None else None
    if carried is not None:
        return carried
    told = _told.get()
    return told if told is not None else _adopted_generation()


def over_already(state: LineageState, meant: int | None) -> JobOver | JobSuperseded | None:
    """What became of the generation that is meant, while nobody here carried it; None where it goes on."""
    if meant is not None and meant < state.generation:
        return JobSuperseded(state)
    return JobOver(state) if state.finished is not None else None


def let_go(state: LineageState, generation: int, carrier: str | None) -> JobOver | JobSuperseded | TakenOver | None:
    """Why a run that carried a generation has nothing more to do, suspended or not; None where it has."""
    if generation == state.generation and carrier is not None and state.carried_by not in (None, carrier):
        return TakenOver(state, str(state.carried_by))
    return over_already(state, generation)


async def _end_if_suspended(run: UUID, final: State[Any]) -> None:
    """End a run that a person has suspended as its job came to an end: Prefect would keep it suspended.

    It takes no state that a flow returns whose run is suspended. Where it is away, ``reconcile`` does this.
    """
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
        async with get_client() as client:
            state = (await client.read_flow_run(run)).state
            if state is not None and state.is_paused() and state.state_details.pause_reschedule:
                await client.set_flow_run_state(run, final)


@contextlib.contextmanager
def _meaning(generation: int | None) -> Iterator[None]:
    token = _told.set(generation)
    try:
        yield
    finally:
        _told.reset(token)


def _adopted_generation() -> int | None:
    """The generation that this run was started to take over; None where it was not."""
    run = present_run()
    return generation_of(run) if run is not None and ADOPTER_TAG in run.tags else None


async def _dress_run(flow_run: str, lineage: str, generation: int) -> None:
    """Tag the flow run, so that the runs of a lineage are found together, and those that are held."""
    async with get_client() as client:
        own = (lineage_tag(lineage), generation_tag(generation))
        await dress(client, UUID(flow_run), own, held=False)


def final_state(happening: Happening, told: Sequence[str] = ()) -> State[Any]:
    """The state in which a run ends that carried a job: it is the job's."""
    also = "".join(f"; {text}" for text in told)
    if isinstance(happening, JobSuperseded):
        return Cancelled(name=EndState.SUPERSEDED, message=f"{superseded_words(happening.state)}{also}")
    if isinstance(happening, TakenOver):
        return Cancelled(name=EndState.HANDED_OVER, message=f"flow run {happening.by} carries the lineage now{also}")
    if isinstance(happening, JobHeld):
        return Failed(name=EndState.HELD, message=f"{_hold_words(happening.state)}{also}")
    finished = happening.state.finished
    if finished is None:
        return Failed(message=f"the lineage is neither finished nor held{also}")
    saved = f"; final save {finished.final_save}" if finished.final_save else ""
    message = f"{finished.outcome}: {finished.detail}{saved}{also}"
    if finished.outcome is Outcome.SUCCEEDED:
        return Completed(message=message)
    if finished.outcome is Outcome.STOPPED:
        return Cancelled(name=EndState.STOPPED, message=message)
    return Failed(message=message)


def _hold_words(state: LineageState) -> str:
    if state.hold is None:
        return "held"
    hold = state.hold.opened
    return f"{hold.why}; to go on: prefect-dispatch submit JOB --run-again {hold.hold}"


def flow_run_id() -> str | None:
    """The flow run that this is; None outside of one."""
    run = present_run()
    return str(run.id) if run is not None else None
