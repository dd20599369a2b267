"""One poll of the cessation signals: all open holds are asked about side by side, and what follows is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, get_args

from prefect_dispatch.errors import DispatchError, Exists, SpecError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.facts import Cessation, HoldLifted, LiftedBy
from prefect_dispatch.model.holds import is_news, lift_without_a_person
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.cessation import Answer, CessationAnswer, CessationSignal, EndedObject
from prefect_dispatch.schedulers.registry import signal_of
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record

T = TypeVar("T")

CESSATION_INTERVAL = timedelta(seconds=60)
"""Between two polls."""
ANSWER_WITHIN = timedelta(seconds=30)
"""How long one signal may take about one hold; then its answer is unknown."""
AT_A_TIME = 128
"""So many holds are asked about at once."""
READERS = 8
"""So many records are read and written at once."""
MAX_DETAIL = 300
CLOCK_SKEW: timedelta = Capabilities.model_fields["clock_skew"].default
"""How far the clocks of pollers may be apart where nobody says otherwise."""


@dataclass(frozen=True)
class Polled:
    """What one poll came to for one lineage.

    Attributes:
        lineage: its name.
        hold: the hold that was open; None where there was none.
        answer: what the site said; None where it was not asked.
        lifted_by: what lifted the hold in this poll; None where it is still open.
        trouble: why nothing could be done for it; empty otherwise.
    """

    lineage: str
    hold: str | None = None
    answer: CessationAnswer | None = None
    lifted_by: LiftedBy | None = None
    trouble: str = ""


def signal_for(own: CessationSignal | None) -> Callable[[LineageState], CessationSignal | None]:
    """What chooses the signal to ask: the site's own for all, else the one that a lineage's scheduler brings along."""

    def choose(state: LineageState) -> CessationSignal | None:
        if own is not None or state.opened is None:
            return own
        try:
            return signal_of(state.opened.scheduler)
        except SpecError:
            return None

    return choose


async def ask_about_holds(
    records: Iterable[Record],
    signal_of: Callable[[LineageState], CessationSignal | None],
    clock: Clock,
    *,
    within: timedelta = ANSWER_WITHIN,
    at_a_time: int = AT_A_TIME,
    clock_skew: timedelta = CLOCK_SKEW,
) -> list[Polled]:
    """Ask the sites about all open holds, record the answers, and lift what they or the clock allow to be lifted.

    Any number of pollers may do so at once, and each may die at any moment: an answer is one fact and a lift another,
    both behind all that was read, and whoever reads an answer whose lift is missing makes up for it without asking
    again. A person's word that comes in between wins, since the lift is decided anew from the record behind it.

    Args:
        records: the lineages'; each is used by one call at a time.
        signal_of: the signal that knows the object of a lineage; None where there is none.
        clock: the poller's.
        within: how long one signal may take about one hold.
        at_a_time: how many are asked at once.
        clock_skew: how far the clocks of two pollers may be apart, for expiry.

    Returns:
        One for each record, in order. Who lifted nothing has started nothing: a supervisor carries on from the record.
    """
    slots = asyncio.Semaphore(at_a_time)
    with ThreadPoolExecutor(READERS, thread_name_prefix="holds") as readers:

        async def poll(record: Record) -> Polled:
            async with slots:
                return await _Poll(record, signal_of, clock, readers, within, clock_skew).run()

        return list(await asyncio.gather(*(poll(record) for record in records)))


def ended_object(lineage: str, state: LineageState) -> EndedObject | None:
    """What the open hold is about, as a signal is asked; None where no object is known."""
    opened = state.hold.opened if state.hold is not None else None
    if opened is None or opened.object is None or opened.restart is None:
        return None
    submission = state.submission_of(opened.object)
    if submission is None:
        return None
    run = next((each for each in submission.executions if each.restart == opened.restart), None)
    return EndedObject(
        lineage=lineage,
        object=opened.object,
        restart=opened.restart,
        attempt=submission.attempt(opened.restart),
        nodes=run.nodes if run is not None else (),
    )


async def ask(signal: CessationSignal, ended: EndedObject, within: timedelta) -> CessationAnswer:
    """Ask one signal, come what may: no known nodes, an error and a time-out are all unknown."""
    if not ended.nodes:
        return CessationAnswer("unknown", "no node is known that it ran on")
    try:
        async with asyncio.timeout(within.total_seconds()):
            return _understood(await signal.ask(ended))
    except TimeoutError:
        return CessationAnswer("unknown", f"no answer within {within.total_seconds():g}s")
    except Exception as error:
        # It is a site's own code: whatever it raises, the holds of others are asked about.
        return CessationAnswer("unknown", _one_line(f"{type(error).__name__}: {error}"))


def _understood(answer: CessationAnswer) -> CessationAnswer:
    """An answer whose words are one line of a bounded length, whatever the site's code wrote."""
    if answer.answer not in get_args(Answer):
        return CessationAnswer("unknown", _one_line(f"it answered {answer.answer!r}: {answer.detail}"))
    return CessationAnswer(answer.answer, _one_line(answer.detail))


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()), MAX_DETAIL)


class _Poll:
    """One poll of one lineage."""

    def __init__(
        self,
        record: Record,
        signal_of: Callable[[LineageState], CessationSignal | None],
        clock: Clock,
        readers: Executor,
        within: timedelta,
        clock_skew: timedelta,
    ) -> None:
        self._record = record
        self._signal_of = signal_of
        self._clock = clock
        self._readers = readers
        self._within = within
        self._clock_skew = clock_skew

    async def run(self) -> Polled:
        try:
            return await self._run()
        except (DispatchError, OSError) as error:
            return Polled(self._record.lineage, trouble=str(error))

    async def _run(self) -> Polled:
        lineage = self._record.lineage
        state = await self._here(self._read)
        if state.hold is None:
            return Polled(lineage)
        hold, ended = state.hold.opened.hold, ended_object(lineage, state)
        lifted = await self._here(self._conclude)
        signal = self._signal_of(state) if lifted is None and ended is not None and not state.hold.ceased else None
        if signal is None or ended is None:
            return Polled(lineage, hold, None, lifted)
        answer = await ask(signal, ended, self._within)
        return Polled(lineage, hold, answer, await self._here(lambda: self._take(hold, ended, answer)))

    async def _here(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _read(self) -> LineageState:
        state = self._record.refresh()
        self._record.require_writable()
        return state

    def _take(self, hold: str, ended: EndedObject, answer: CessationAnswer) -> LiftedBy | None:
        """Record an answer, right behind what was read before it was asked for, or not at all; then what follows."""
        fact = Cessation(hold=hold, object=ended.object, answer=answer.answer, detail=answer.detail)
        state = self._record.known
        if state.hold is not None and is_news(state.hold, fact, self._clock.now()):
            try:
                self._record.append(fact)
            except Exists:
                self._read()
        return self._conclude()

    def _conclude(self) -> LiftedBy | None:
        """Append what follows without a person, decided anew behind whatever came in between."""
        while True:
            state = self._record.known
            due = lift_without_a_person(state, self._clock.now(), self._clock_skew)
            if due is None:
                return None
            try:
                self._record.append(due)
            except Exists:
                self._read()
                continue
            if isinstance(due, HoldLifted):
                return due.lifted_by
