"""A flow run that waits for a person: asks, reads the answer first of all, and goes on when it need not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound, Pause
from prefect.settings import PREFECT_API_URL
from prefect.utilities.urls import url_for

from prefect_dispatch.errors import LineageError, StoreError, StoreUnreachable, UsageError
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.model.state import Hold, LineageState
from prefect_dispatch.pictures.hold_page import hold_page, short_reason
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.trouble import Trouble
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.held_run import (
    HELD_TAG,
    Way,
    dress,
    dress_as_held,
    generation_tag,
    last_answer,
    last_asked,
    lineage_tag,
    open_question,
    own_name,
    put_question,
    question_of,
)
from prefect_dispatch.tasks.hold_answers import apply_answer, is_applied
from prefect_dispatch.tasks.hold_form import MOST_SAVES, RUN_AGAIN, form_of, read_answer
from prefect_dispatch.tasks.resuming import how_lifted, wake
from prefect_dispatch.tasks.wishes import is_resumed, is_suspended_outside, record_wish

LOOK_SECONDS = 5.0
"""How often a process that waits looks at the record and at its run."""
AGAIN_SECONDS = 10.0
"""How long a process waits before it turns to an API that was away once more."""
MOST_CARRIERS = 20
"""Runs that carried a lineage before, in which an answer may lie that nobody has read; the latest."""
_ends_held: ContextVar[bool] = ContextVar("ends_held", default=False)


@contextlib.contextmanager
def ending_when_held() -> Iterator[None]:
    """Have flow ``supervise`` end when the job is held, and not wait for a person: for who tells them himself."""
    token = _ends_held.set(True)
    try:
        yield
    finally:
        _ends_held.reset(token)


def way_of(run: FlowRun) -> Way:
    """How a run can wait: only the top run of a deployment can be started again from the top, by a worker.

    Any other waits as a process, if there is a server that lasts, where a person can find it.
    """
    if _ends_held.get():
        return Way.END
    if run.deployment_id is not None and run.parent_task_run_id is None:
        return Way.SUSPEND
    return Way.PAUSE if PREFECT_API_URL.value() else Way.END


def how_to_lift(lineage: str, state: LineageState) -> str:
    """The command that lifts a hold."""
    store = f" --store {state.opened.record_root}" if state.opened is not None else ""
    return f"prefect-dispatch resume {lineage}{store} --run-again (or --stop, --scratch, --from PUBLICATION)"


@dataclass
class Holding:
    """What a run of ``supervise`` does about holds.

    Attributes:
        record: the lineage's record.
        supervisor: advances the lineage.
        run: the flow run; None outside of one.
        announcer: tells of holds that are lifted.
        told: what a person must know of answers that came to nothing.
        own_name: the run's name before it was held.
    """

    record: Record
    supervisor: Supervisor
    run: UUID | None
    announcer: Announcer
    told: list[str] = field(default_factory=list)
    own_name: str = ""

    async def take_up(self, state: LineageState) -> None:
        """Read what was answered while there was no process, before anything else is done.

        An API that is away now, or knows no such run any more, is asked again where the hold is waited for. A record
        that is away is waited for here: whatever was answered comes before the job goes on.
        """
        if self.run is None:
            return
        trouble = Trouble("answers cannot be read yet")
        while True:
            try:
                async with get_client() as client:
                    await self._read_answers(client, state)
                await self._announce()
                trouble.end(_warn)
            except (StoreError, StoreUnreachable) as error:
                trouble.note(str(error), _warn)
                await self.supervisor.clock.sleep(AGAIN_SECONDS)
                state = await self.supervisor.read()
                continue
            except (httpx.HTTPError, ObjectNotFound) as error:
                trouble.note(_words(error), _warn)
            return

    async def wait(self) -> bool:
        """Wait for what lifts the open hold. What is away meanwhile, Prefect or the record, is waited for too.

        Returns:
            True when there is something to go on with; False when this run does not wait, or cannot.

        Raises:
            Pause: the run is suspended now; it starts again from the top.
        """
        trouble = Trouble()
        while True:
            try:
                state = await self.supervisor.read()
                if state.hold is None or not self._carries(state):
                    await self._announce()
                    return True
                async with get_client() as client:
                    if not await self._ask(client, state, state.hold):
                        return False
                trouble.end(_warn)
                continue
            except ObjectNotFound:
                text = "this run was deleted; the hold stays open"
                get_run_logger().warning(text, extra={"action": "hold.run_deleted"})
                return False
            except httpx.HTTPError as error:
                trouble.note(f"Prefect cannot be asked to wait: {_words(error)}", _warn)
            except (StoreError, StoreUnreachable) as error:
                trouble.note(f"the hold cannot be looked after: {error}", _warn)
            await self.supervisor.clock.sleep(AGAIN_SECONDS)

    async def _ask(self, client: PrefectClient, state: LineageState, hold: Hold) -> bool:
        """Put the question about a hold that is open, unless it was answered already."""
        if self.run is None:
            return False
        flow_run = await client.read_flow_run(self.run)
        way = way_of(flow_run)
        if way is Way.END:
            return False
        if await self._read_answers(client, state):
            return True
        lineage = self.supervisor.lineage
        # A try whose reply was lost has renamed the run already.
        self.own_name = self.own_name or (
            flow_run.name if HELD_TAG not in flow_run.tags else own_name(flow_run, lineage)
        )
        if is_suspended_outside(flow_run.state):
            return await self._stay_suspended(client, flow_run, state)
        tags = self._tags(state)
        question = open_question(flow_run, hold.opened.hold)
        if question is None:
            _, asked = await last_answer(flow_run, hold.opened.hold)
            question = question_of(hold.opened.hold, asked + 1)
        saves = await self._saves()
        page = hold_page(lineage, state, await self.supervisor.entries(), saves)
        form = form_of([save for save, _ in saves], hold.opened.hold)
        await dress(client, self.run, tags, held=True, name=f"{lineage}: held, {short_reason(state)}")
        paused = await put_question(client, flow_run, question, form, page, way, hold.opened.until)
        if paused is not None and way is Way.SUSPEND:
            raise Pause(state=paused)
        if paused is not None:
            self._say_how(flow_run, state)
            await self._stay(client, hold.opened.hold)
        await dress(client, self.run, tags, held=False, name=self.own_name)
        return paused is not None

    async def _stay_suspended(self, client: PrefectClient, flow_run: FlowRun, state: LineageState) -> bool:
        """A person has suspended the run, and the hold followed from that: it stays as they left it, without a form."""
        assert state.hold is not None
        name = f"{self.supervisor.lineage}: held, {short_reason(state)}"
        await dress(client, flow_run.id, self._tags(state), held=True, name=name)
        if flow_run.state is not None and flow_run.state.state_details.pause_reschedule:
            raise Pause(state=flow_run.state)
        await self._stay(client, state.hold.opened.hold)
        await dress(client, flow_run.id, self._tags(state), held=False, name=self.own_name)
        return True

    async def leave(self) -> None:
        """Say of a run that a person has suspended, and whose process ends now, that it is held."""
        state = await self.supervisor.read()
        if self.run is None or state.hold is None or not self._carries(state):
            return
        name = f"{self.supervisor.lineage}: held, {short_reason(state)}"
        with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
            async with get_client() as client:
                await dress_as_held(client, self.run, self._tags(state), name)

    def _tags(self, state: LineageState) -> tuple[str, str]:
        return (lineage_tag(self.supervisor.lineage), generation_tag(state.generation))

    async def _stay(self, client: PrefectClient, hold: str) -> None:
        """Wait in this process, and look after the job meanwhile. Whatever ends the hold, the record knows it first."""
        trouble, goes_on = Trouble(), False
        while not goes_on:
            await self.supervisor.clock.sleep(LOOK_SECONDS)
            try:
                goes_on = await self._look(client, hold)
                trouble.end(_warn)
            except (StoreError, StoreUnreachable) as error:
                # What was asked of the run meanwhile is read again with the next look: it stays as it is.
                trouble.note(f"the hold cannot be looked after: {error}", _warn)

    async def _look(self, client: PrefectClient, hold: str) -> bool:
        """Look once, at the record and at the run. Returns whether there is nothing to wait for any more."""
        assert self.run is not None
        state = await self.supervisor.read()
        if state.hold is not None and state.hold.opened.hold == hold and self._carries(state):
            state = (await self.supervisor.advance()).state
        if state.hold is None or state.hold.opened.hold != hold or not self._carries(state):
            await wake(client, self.run, how_lifted(state))
            return True
        with contextlib.suppress(httpx.TransportError):
            flow_run = await client.read_flow_run(self.run)
            if flow_run.state is None or flow_run.state.is_paused():
                return False
            with contextlib.suppress(LineageError):
                await asyncio.to_thread(record_wish, self.record, flow_run)
            return True
        return False

    async def _read_answers(self, client: PrefectClient, state: LineageState) -> bool:
        """Apply an answer to the hold that it was given to. Returns whether the open hold is lifted by it."""
        assert self.run is not None
        run = await client.read_flow_run(self.run)
        open_hold, asked = state.hold.opened.hold if state.hold is not None else None, last_asked(run)
        if asked is not None and asked != open_hold:
            late, _ = await last_answer(run, asked)
            if late is not None:
                await self._apply(asked, late)
        if open_hold is None:
            return False
        values, number = await last_answer(run, open_hold)
        if number == 0 and is_resumed(run, await self.supervisor.entries(), open_hold):
            values = {"choice": RUN_AGAIN, "note": f"flow run {run.id} was resumed"}
        elif number == 0:
            values = await self._left_behind(client, open_hold)
        return values is not None and await self._apply(open_hold, values)

    async def _left_behind(self, client: PrefectClient, hold: str) -> dict[str, Any] | None:
        """An answer in an earlier run, whose process was killed before it could read it."""
        carried = [each.fact.flow_run for each in await self.supervisor.entries() if isinstance(each.fact, CarriedBy)]
        for carrier in list(dict.fromkeys(reversed(carried)))[:MOST_CARRIERS]:
            with contextlib.suppress(ObjectNotFound, ValueError):
                values, _ = await last_answer(await client.read_flow_run(UUID(carrier)), hold)
                if values:
                    return values
        return None

    async def _apply(self, hold: str, values: Mapping[str, Any]) -> bool:
        publications = [save for save, _ in await self._saves(None)]
        logger = get_run_logger()
        try:
            answer = read_answer(values, publications, hold)
            if is_applied(await self.supervisor.entries(), hold, answer):
                return True
            word = await asyncio.to_thread(apply_answer, self.record, hold, answer)
        except (LineageError, UsageError) as error:
            text = f"the answer to hold {hold} changed nothing: {error}"
            if text not in self.told:
                self.told.append(text)
                logger.warning("%s", text, extra={"action": "hold.answer_refused"})
            return False
        logger.info("%s", word, extra={"action": "hold.answered"})
        return True

    async def _announce(self) -> None:
        lifted = (await self.supervisor.read()).lifted
        if lifted is not None:
            self.announcer.lifted(lifted)

    def _carries(self, state: LineageState) -> bool:
        return self.run is None or state.carried_by == str(self.run)

    async def _saves(self, most: int | None = MOST_SAVES) -> Sequence[tuple[Publication, datetime | None]]:
        """The lineage's saves, newest first, and when the newest of them were written."""
        root = self.supervisor.root
        publications = (await asyncio.to_thread(root.publications) if root is not None else None) or []
        newest = publications[-most:] if most is not None else publications
        written = await asyncio.to_thread(root.saved_at, newest[-10:]) if root is not None and most is not None else {}
        return [(save, written.get(save)) for save in reversed(newest)]

    def _say_how(self, flow_run: FlowRun, state: LineageState) -> None:
        """Tell at the terminal how a paused job is taken up again."""
        lineage = self.supervisor.lineage
        get_run_logger().warning(
            "lineage %s is held: %s; this process waits. To answer, resume the run in the UI (%s), or: %s",
            lineage,
            state.hold.opened.why if state.hold is not None else "",
            url_for(flow_run) or "no address of it is known",
            how_to_lift(lineage, state),
            extra={"action": "hold.waiting"},
        )


def _warn(text: str) -> None:
    get_run_logger().warning("%s", text, extra={"action": "hold.trouble"})


def _words(error: Exception) -> str:
    """An error in words; those of a time that ran out have none of their own."""
    return str(error) or type(error).__name__
