"""What one run of flow ``reconcile`` does for each lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import OrchestrationResult, SetStateStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from prefect_dispatch.errors import DispatchError, LineageError, SpecError, UsageError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.supervise import final_state, let_go
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.pictures.hold_page import short_reason
from prefect_dispatch.supervisor.beats import BEAT_EVERY, DEAD_AFTER, last_beats, vouch
from prefect_dispatch.supervisor.carriers import Carrier, carried_generation, carrier_of, settled_at
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.ending import see_to_it
from prefect_dispatch.supervisor.places import open_record, open_records
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.tasks.adoption import (
    Vacancy,
    adopt,
    deployment_of,
    earlier_adopters,
    has_stuck,
    is_on_its_way,
    read_adopters,
)
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.held_run import (
    HELD_TAG,
    dress,
    dress_as_held,
    generation_tag,
    lineage_tag,
    own_name,
)
from prefect_dispatch.tasks.naming import lineage_name
from prefect_dispatch.tasks.resuming import Woken, how_lifted, wake
from prefect_dispatch.tasks.standing import Signs, Standing, is_silent, needs_no_process, standing_of
from prefect_dispatch.tasks.supervise_runs import read_runs
from prefect_dispatch.tasks.wishes import Wish, overtaken_wish, record_wish, wish_of

SEE_TO_IT_SECONDS = 20.0
"""How long a job that is to stop is seen to here; what takes longer is left to a run of its own."""
ONE_MORE_SECONDS = BEAT_EVERY.total_seconds() * 1.5
"""How long one more sign of life is waited for before a process is taken for dead."""
AT_A_TIME = 16


class Reconciling:
    """The work of one run.

    Args:
        client: Prefect.
        deployment: the name of the deployment that takes over.
        clock: the clock.
        report: what was done and what could not be is added.
    """

    def __init__(self, client: PrefectClient, deployment: str, clock: Clock, report: PollReport) -> None:
        self._client = client
        self._deployment = deployment
        self._clock = clock
        self._report = report
        self._records: dict[Record, str] = {}
        self._beats: dict[str, dict[tuple[str, str], datetime]] = {}

    @property
    def count(self) -> int:
        """How many lineages are looked after."""
        return len(self._records)

    async def add(self, root: str) -> None:
        """Look after the lineages of a record root that are in its index of open ones."""
        found, beats = (
            await asyncio.to_thread(open_records, root, self._clock),
            await asyncio.to_thread(last_beats, root),
        )
        self._report.troubles += found.strangers
        self._records |= dict.fromkeys(found.records, root)
        self._beats[root] = beats

    async def settle(self) -> None:
        """Do for each lineage what its run's state asks for; with one query for all runs."""
        are_open = await asyncio.gather(*(self._is_open(record) for record in self._records))
        read = [record for record, is_open in zip(self._records, are_open, strict=True) if is_open]
        ids = {uuid for each in read if (uuid := _uuid(each.known.carried_by)) is not None}
        runs = await read_runs(self._client, ids)
        slots = asyncio.Semaphore(AT_A_TIME)

        async def settle(record: Record) -> None:
            async with slots:
                try:
                    await self._settle(record, runs.get(record.known.carried_by or ""))
                except (ObjectNotFound, LineageError):
                    pass  # Somebody else was faster; the next minute sees what that came to.
                except (DispatchError, httpx.HTTPError, OSError) as error:
                    self._report.troubles.append(f"{record.lineage}: {error}")

        await asyncio.gather(*(settle(each) for each in read))

    async def end_waiting(self, live: Sequence[FlowRun]) -> None:
        """End the suspended runs whose jobs are over or superseded, or carried by others: nobody has told them."""
        carriers = {record.known.carried_by for record in self._records if record.known.open}
        suspects = [run for run in live if _is_suspended(run) and str(run.id) not in carriers]
        await asyncio.gather(*(self._end_if_let_go(run, root) for run in suspects for root in self._beats))

    async def _end_if_let_go(self, run: FlowRun, root: str) -> None:
        own = str(run.id)
        try:
            record = open_record(root, lineage_name(run), self._clock)
            state, entries = await asyncio.to_thread(record.refresh), await asyncio.to_thread(record.entries)
            generation = carried_generation(entries, own)
            over = let_go(state, generation, own) if generation is not None else None
            if over is None or not _is_suspended(await self._client.read_flow_run(run.id)):
                return
            final = final_state(over)
            await self._client.set_flow_run_state(run.id, final)
            await dress(self._client, run.id, (), held=False, name=own_name(run, record.lineage))
            self._report.told.append(f"flow run {own} waits no more: {final.message}")
        except (ObjectNotFound, UsageError):
            pass  # It is deleted, or of a flow of somebody else's that has the name of one of ours.
        except (DispatchError, httpx.HTTPError, OSError) as error:
            self._report.troubles.append(f"flow run {own}: {error}")

    async def mark_silent(self, live: Sequence[FlowRun]) -> None:
        """Mark the runs whose processes were killed unseen, and whose jobs others carry by now or are over."""
        carriers = {record.known.carried_by for record in self._records if record.known.open}
        suspects = [run for run in live if str(run.id) not in carriers]
        await asyncio.gather(*(self._mark_if_silent(run, root) for run in suspects for root in self._beats))

    async def _mark_if_silent(self, run: FlowRun, root: str) -> None:
        lineage, own = lineage_name(run), str(run.id)
        beat = self._beats[root].get((lineage, own))
        if not is_silent(run, beat, self._clock.now()):
            return
        try:
            entries = await asyncio.to_thread(open_record(root, lineage, self._clock).entries)
            if carried_generation(entries, own) is not None and not await self._lives(root, lineage, own, beat):
                await self._crash(run)
        except ObjectNotFound:
            pass  # It was deleted meanwhile.
        except UsageError:
            pass  # It is of a flow of somebody else's that has the name of one of ours.
        except (DispatchError, httpx.HTTPError, OSError) as error:
            self._report.troubles.append(f"flow run {own}: {error}")

    async def _lives(self, root: str, lineage: str, carrier: str, beat: datetime | None) -> bool:
        """Whether a process that seems silent gives one more sign: its clock, or this one, may be wrong by hours."""
        await self._clock.sleep(ONE_MORE_SECONDS)
        return (await asyncio.to_thread(last_beats, root)).get((lineage, carrier)) != beat

    async def _is_open(self, record: Record) -> bool:
        try:
            state = await asyncio.to_thread(record.refresh)
            if state.finished is not None:
                await asyncio.to_thread(record.settle_index)
            if state.open:
                record.require_writable()
            return state.open
        except (DispatchError, OSError) as error:
            self._report.troubles.append(f"{record.lineage}: {error}")
            return False

    async def _settle(self, record: Record, run: FlowRun | None) -> None:
        state, now = record.known, self._clock.now()
        assert state.at is not None
        # A long record is read as a whole only where it may matter since when somebody carries it.
        known = Carrier(state.carried_by, state.at) if state.carried_by is not None else None
        root = self._records[record]
        beat = self._beats[root].get((record.lineage, state.carried_by or ""))
        held = state.hold is not None
        standing = standing_of(Signs(known, run, beat, state.at, held), now)
        if standing in (Standing.WISHED, Standing.LOST):
            carrier = carrier_of(await asyncio.to_thread(record.entries))
            run = run if carrier is not None and carrier.flow_run == state.carried_by else None
            standing = standing_of(Signs(carrier, run, beat, state.at, held), now)
        if run is not None and needs_no_process(run):
            # For who looks at this root with another server, and does not know the run.
            await asyncio.to_thread(vouch, root, record.lineage, str(run.id), beat, now)
        match standing:
            case Standing.CARRIED:
                return
            case Standing.WAITS:
                state = await self._see_to_it(record)
                await self._dress(record, run, state)
                if run is not None and state.hold is None:
                    await self._wake(record, run)
            case Standing.WISHED:
                await self._grant(record, run)
            case Standing.LOST:
                over = run is not None and run.state is not None and run.state.is_final()
                if over or not await self._lives(root, record.lineage, state.carried_by or "", beat):
                    await self._take_over(record, run, beat)

    async def _grant(self, record: Record, run: FlowRun | None) -> None:
        """What a person has asked of the run is written down and seen to."""
        if run is None or run.state is None:
            return
        word = await asyncio.to_thread(record_wish, record, run)
        self._report.told += [word] if word else []
        state = await self._see_to_it(record)
        if state.finished is not None:
            return
        await self._dress(record, run, state)
        if wish_of(run.state) is Wish.STOP and run.state.is_final():
            await self._adopt(record, run)
        elif run.state.is_paused() and state.hold is None and state.stop is None:
            await self._wake(record, run)

    async def _dress(self, record: Record, run: FlowRun | None, state: LineageState) -> None:
        """Have a run that waits look like one, whose process was not there to do so."""
        if run is not None and state.hold is not None and HELD_TAG not in run.tags:
            own = (lineage_tag(record.lineage), generation_tag(state.generation))
            await dress_as_held(self._client, run.id, own, f"{record.lineage}: held, {short_reason(state)}")

    async def _see_to_it(self, record: Record) -> LineageState:
        if record.known.stop is None:
            return record.known
        state = await see_to_it(record, self._clock, SEE_TO_IT_SECONDS)
        Announcer(record.lineage, await asyncio.to_thread(record.id)).settled(state)
        if state.finished is not None:
            self._report.told.append(f"{record.lineage} is {state.finished.outcome}")
        return state

    async def _wake(self, record: Record, run: FlowRun) -> None:
        """Its hold was lifted by somebody who could not reach Prefect."""
        why = how_lifted(await asyncio.to_thread(record.refresh))
        if await wake(self._client, run.id, why) is Woken.RESUMED:
            self._report.told.append(f"{record.lineage} is resumed: {why}")

    async def _take_over(self, record: Record, run: FlowRun | None, beat: datetime | None) -> None:
        if run is not None and is_silent(run, beat, self._clock.now()):
            await self._crash(run)
        if run is not None:
            word = await asyncio.to_thread(record_wish, record, await overtaken_wish(self._client, run))
            self._report.told += [word] if word else []
        if record.known.stop is not None:
            state = await self._see_to_it(record)
            if state.finished is not None:
                return
        await self._adopt(record, run)

    async def _adopt(self, record: Record, run: FlowRun | None) -> None:
        state = await asyncio.to_thread(record.refresh)
        id = await asyncio.to_thread(record.id)
        adopters = await read_adopters(self._client, record.lineage, id, state.generation)
        for each in adopters:
            if wish_of(each.state) is not None:
                word = await asyncio.to_thread(record_wish, record, each)
                self._report.told += [word] if word else []
        state = await self._see_to_it(record)
        if state.finished is not None or await self._is_taken_over(record, adopters):
            return
        try:
            deployment = await deployment_of(self._client, run, self._deployment)
        except SpecError:
            if state.hold is not None:
                return  # It waits for a person, and commands answer for it as well.
            raise
        vacancy = Vacancy(record.lineage, id, settled_at(await asyncio.to_thread(record.entries)), state, run)
        earlier = await earlier_adopters(self._client, vacancy)
        if earlier.failing:
            self._report.troubles.append(f"{record.lineage}: {earlier.failing}")
        adopter = await adopt(self._client, deployment, vacancy, earlier, self._clock.now())
        if adopter is not None:
            self._report.told.append(
                f"flow run {adopter.id} takes {record.lineage} over from {state.carried_by or 'nobody'}"
            )

    async def _is_taken_over(self, record: Record, adopters: Sequence[FlowRun]) -> bool:
        """Whether a run is on its way that was started when the record stood elsewhere, as before a site's answer."""
        entries = await asyncio.to_thread(record.entries)
        carrier, root = record.known.carried_by, self._records[record]
        for run in adopters:
            if not is_on_its_way(run, entries, carrier):
                continue
            stuck = has_stuck(run, self._clock.now())
            if not stuck or await self._lives(root, record.lineage, str(run.id), None):
                state = record.known
                if run.state is not None and run.state.is_paused() and state.hold is None and state.stop is None:
                    await self._wake(record, run)
                return True
            await self._crash(run)
        return False

    async def _crash(self, run: FlowRun) -> None:
        """Mark a run as crashed. Should its process live after all, it finds itself overtaken, and says so."""
        minutes = DEAD_AFTER.total_seconds() / 60
        message = f"its process has given no sign of life for {minutes:g} minutes"
        reach("prefect.crash")
        answer: OrchestrationResult[Any] = await self._client.set_flow_run_state(run.id, Crashed(message=message))
        if answer.status is SetStateStatus.ACCEPT:
            self._report.told.append(f"flow run {run.id} has crashed: {message}")


def _is_suspended(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_paused() and bool(run.state.state_details.pause_reschedule)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        return None
