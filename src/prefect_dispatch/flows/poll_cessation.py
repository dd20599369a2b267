"""The flow that looks after holds: asks the sites, lets holds expire, and wakes the runs of those that were lifted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from pydantic import Field

from prefect_dispatch.blocks.command_signal import CommandSignal
from prefect_dispatch.blocks.record_roots import inline_roots, looked_after
from prefect_dispatch.errors import DispatchError, SpecError, UsageError
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.model.facts import Resolution
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.cessation import CessationSignal
from prefect_dispatch.supervisor.assemble import supervisor_of
from prefect_dispatch.supervisor.cessation import ask_about_holds, signal_for
from prefect_dispatch.supervisor.clock import Clock, SystemClock
from prefect_dispatch.supervisor.places import open_record, open_records
from prefect_dispatch.supervisor.polls import POLL_CESSATION
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.held_runs import delete_old_polls, mark_poll, read_held_runs

NAME = "poll-cessation"
POLLS_KEPT = timedelta(hours=1)
"""How long the completed runs of this flow are kept: one each minute, and people look for their own runs."""
_COMMAND = f"{CommandSignal.get_block_type_slug()}/"
MOST_STEPS = 8
"""Steps that a poll takes for a lineage whose hold ended the job; nothing of it runs, so there are two or three."""


@flow(name=NAME, flow_run_name=NAME, persist_result=False, validate_parameters=True)
async def poll_cessation(
    stores: Annotated[
        list[str] | None,
        Field(description="Blocks checkpoint-store/NAME, or folders of records; all blocks where left empty"),
    ] = None,
    signal: Annotated[
        str | None,
        Field(description="A block command-signal/NAME to ask; each scheduler's own signal where left empty"),
    ] = None,
) -> State[Any]:
    """Look once after all open holds. Started every minute; killed anywhere, the next one finishes its work.

    Each site is asked whether the processes behind its holds are gone, answers are recorded, and holds that this or the
    clock lifts are lifted. Runs that wait although their hold is lifted, by whomever, go on. A run that was cancelled
    while it was held stops its job.

    Args:
        stores: where the records are.
        signal: the block of a site's own command.

    Returns:
        Completed with what was done, or Failed with what could not be; the rest was done all the same.
    """
    clock, report = SystemClock(), PollReport()
    asked = await _signal_for(signal, report.troubles)
    async with get_client() as client:
        await mark_poll(client)
        held = await read_held_runs(client)
        named = await looked_after(stores, held.jobs(), report.troubles)
        roots = dict.fromkeys([*named, *(inline_roots(held.jobs_over()) if stores is None else ())])
        records: list[Record] = []
        for root in roots:
            try:
                found = await asyncio.to_thread(open_records, root, clock)
                records += found.records
                report.troubles += found.strangers
                report.roots.append(root)
            except DispatchError as error:
                # A store that only a run names which is over may be away for ever, and then nothing waits there.
                (report.troubles if root in named else report.beyond).append(str(error))
        polled = await ask_about_holds(records, asked, clock)
        report.troubles += [f"{each.lineage}: {each.trouble}" for each in polled if each.trouble]
        report.told += [
            f"hold {each.hold} of {each.lineage} is lifted by {each.lifted_by}" for each in polled if each.lifted_by
        ]
        for record in records:
            await _announce(record, report.troubles)
        away = [root for root in named if root not in report.roots]
        report.told += await held.settle(client, _finder(records, [*report.roots, *away], clock), report.troubles)
        for record in records:
            await _finish(record, clock, report.troubles)
        await delete_old_polls(client, NAME, clock.now() - POLLS_KEPT)
    about = sum(1 for each in polled if each.hold is not None)
    return await report.end(POLL_CESSATION, f"{about} holds", clock.now())


async def _signal_for(signal: str | None, troubles: list[str]) -> Callable[[LineageState], CessationSignal | None]:
    """What chooses the signal to ask: the site's own for all, else the one that a lineage's scheduler brings along.

    Where the site's own is not there, none is asked in its place; what asks nobody is done all the same.
    """
    try:
        return signal_for(await _command_signal(signal) if signal else None)
    except DispatchError as error:
        troubles.append(str(error))
        return lambda state: None


async def _command_signal(reference: str) -> CessationSignal:
    try:
        block: Any = await CommandSignal.aload(reference.removeprefix(_COMMAND))
    except ValueError:
        raise SpecError(f"signal {reference!r}: Prefect has no block of that name; write {_COMMAND}NAME") from None
    signal: CessationSignal = block.open()
    return signal


def _finder(records: Sequence[Record], roots: Sequence[str], clock: Clock) -> Callable[[str], Sequence[Record]]:
    """Finds the records of lineages of a name: those that are open and were read already, else any."""
    known: dict[str, list[Record]] = {}
    for record in records:
        known.setdefault(record.lineage, []).append(record)

    def find(lineage: str) -> Sequence[Record]:
        try:
            return known.get(lineage) or [open_record(root, lineage, clock) for root in roots]
        except UsageError:
            return ()

    return find


async def _announce(record: Record, troubles: list[str]) -> None:
    """Tell of a hold that is lifted and that nobody has acted on yet; its run may not be there to do so."""
    if record.known.lifted is None:
        return
    try:
        Announcer(record.lineage, await asyncio.to_thread(record.id)).lifted(record.known.lifted)
    except (DispatchError, OSError) as error:
        troubles.append(f"{record.lineage}: {error}")


async def _finish(record: Record, clock: Clock, troubles: list[str]) -> None:
    """End a job that its hold's end was the end of: nothing of it runs, and nobody else may look after it any more."""
    lifted = record.known.lifted
    if lifted is None or lifted.resolution not in (Resolution.EXPIRE, Resolution.STOP):
        return
    try:
        supervisor = await asyncio.to_thread(supervisor_of, record, record.known, clock)
        for _ in range(MOST_STEPS):
            advanced = await supervisor.advance()
            if advanced.state.finished is not None or not advanced.moved:
                return
    except (DispatchError, OSError) as error:
        troubles.append(f"{record.lineage}: {error}")
