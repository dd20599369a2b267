"""Every kind of fault at every request of a record on S3: no fact is lost or told twice, and nothing runs twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from prefect_dispatch.errors import Absent, DispatchError, Exists, MalformedError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import CarriedBy, Outcome
from prefect_dispatch.model.fold import fold
from prefect_dispatch.model.observation import Exit, ObjectState
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.record import SNAPSHOT_EVERY, Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.s3 import faults
from support.s3.messages import Operation
from support.s3.place import Place
from support.s3.proxy import Exchange
from support.s3.strikes import Act

CAPABILITIES = SCRIPTED.model_copy(update={"requeue": False})
FACTS = SNAPSHOT_EVERY + 3
"""Enough for a snapshot and some facts behind it."""
MOST_TROUBLES = 3
"""After how many looks at a record that cannot be reached a supervisor is taken for gone."""
SHARED = "a-record-that-nobody-changes"
LAST_WORD = (Absent, Exists, MalformedError)


@dataclass
class Desk(Place):
    """A record on S3, a scheduler in memory, and a clock of the test's own."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.scheduler = ScriptedScheduler(self.clock.now, CAPABILITIES)
        self.kept: Supervisor | None = None

    def record(self, store: S3Store) -> Record:
        return Record(store, store.ledger(".dispatch/open"), "digits", self.clock)

    def supervisor(self, store: S3Store) -> Supervisor:
        return Supervisor(self.record(store), self.scheduler, None, self.clock)

    def check_facts(self) -> None:
        """The record is whole at each of its lengths, and no submission was called for twice."""
        entries = self.record(self.honest).entries()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        for length in range(len(entries) + 1):
            fold(entries[:length])
        assert set(self.scheduler.submit_calls.values()) <= {1}


def with_opened_record(desk: Desk) -> None:
    desk.record(desk.honest).append(plain_opening(CAPABILITIES, root_visible=False))


def open_record(desk: Desk) -> object:
    record = desk.record(desk.store)
    record.id()
    return record.append(plain_opening(CAPABILITIES, root_visible=False))


def check_opened(desk: Desk, returned: object, error: DispatchError | None) -> None:
    record = desk.record(desk.honest)
    state = record.refresh()
    if error is None:
        assert state == returned
    elif state.opened is None:
        record.append(plain_opening(CAPABILITIES, root_visible=False))
    assert record.refresh().seq == 1
    assert record.id() == desk.record(desk.store).id()
    desk.check_facts()


def refresh(desk: Desk) -> object:
    return desk.record(desk.elsewhere(f"s3://{desk.direct.bucket}/{SHARED}")).refresh()


def check_refreshed(desk: Desk, returned: Any, error: DispatchError | None) -> None:
    assert (returned.seq, returned.carried_by) == (FACTS, f"run-{FACTS - 1}") if error is None else returned is None


def append(desk: Desk) -> object:
    record = desk.record(desk.store)
    record.refresh()
    record.append(CarriedBy(flow_run="first"))
    return record.append(CarriedBy(flow_run="second"))


def check_appended(desk: Desk, returned: Any, error: DispatchError | None) -> None:
    entries = desk.record(desk.honest).entries()
    added = [entry.fact.flow_run for entry in entries if isinstance(entry.fact, CarriedBy)]
    assert added == ["first", "second"] if error is None else added in ([], ["first"], ["first", "second"])
    desk.check_facts()


async def carry(desk: Desk, supervisor: Supervisor, most: int = 60) -> Outcome | None:
    """Advance, and have the cluster run what is there: the first submission is lost, the next one ends well."""
    troubles = 0
    for _ in range(most):
        advanced = await supervisor.advance()
        troubles += bool(advanced.trouble)
        if troubles > MOST_TROUBLES:
            return None
        if advanced.state.finished is not None:
            return advanced.state.finished.outcome
        for object in desk.scheduler.objects():
            if object.state is ObjectState.QUEUED:
                desk.scheduler.start(object.ref)
            elif object.state is ObjectState.RUNNING and len(desk.scheduler.objects()) == 1:
                desk.scheduler.end(object.ref, Cause.NODE_LOST)
            elif object.state is ObjectState.RUNNING:
                desk.scheduler.end(object.ref, exit=Exit(code=0))
        if not advanced.moved:
            desk.clock.turn(timedelta(seconds=40))
    return None


def advance(desk: Desk) -> object:
    return asyncio.run(carry(desk, desk.supervisor(desk.store)))


def check_carried(desk: Desk, returned: object, error: DispatchError | None) -> None:
    # Whoever comes after takes it to its end, on what is in the record alone.
    outcome = returned or asyncio.run(carry(desk, desk.supervisor(desk.honest)))
    assert outcome is Outcome.SUCCEEDED
    desk.check_facts()
    assert desk.direct.keys(".dispatch/open/") == [] or error is not None
    state = desk.record(desk.honest).refresh()
    tokens = {submission.token for submission in state.submissions}
    assert {object.ref.token for object in desk.scheduler.objects()} <= tokens
    assert all(object.is_over for object in desk.scheduler.objects())


ACTS = (
    Act("open a record", open_record, check_opened, forbidden=LAST_WORD),
    Act("refresh", refresh, check_refreshed, forbidden=LAST_WORD),
    Act("append", append, check_appended, with_opened_record, forbidden=LAST_WORD),
    Act("advance", advance, check_carried, with_opened_record, forbidden=LAST_WORD, seconds=120),
)


@pytest.fixture(scope="module", autouse=True)
def long_record(places: Any) -> None:
    """A record with a snapshot, for all strikes at reading one."""
    store = places.honest(f"s3://{places.server.bucket}/{SHARED}")
    record = Record(store, store.ledger(".dispatch/open"), "digits", ManualClock())
    state = record.append(plain_opening(CAPABILITIES, root_visible=False))
    while state.seq < FACTS:
        state = record.append(CarriedBy(flow_run=f"run-{state.seq}"))


@pytest.fixture
def desks(places: Any, sweep: Any) -> Any:
    """The sweep, over records."""
    return sweep.over(lambda patience: Desk(**vars(places.new(patience))))


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_a_record_tells_what_is_true_or_fails(act: Act[Any], desks: Any) -> None:
    # given an act and the requests that it makes
    # when each kind of fault strikes at one of them (in the full form: at each)
    strikes = desks.try_all(act)
    # then all that the act's check and the sweep ask for held, and faults did strike
    assert len(strikes) > 10


def test_a_record_that_fails_right_after_another_was_faster_is_waited_for(places: Any, place: Any) -> None:
    # given a supervisor whose next fact another one appends first, after which the server says no to everything
    desk = Desk(**vars(place))
    with_opened_record(desk)
    supervisor = desk.supervisor(desk.store)
    asyncio.run(supervisor.read())

    def lose_the_race(exchange: Exchange) -> None:
        desk.record(desk.honest).append(CarriedBy(flow_run="another"))
        # It may still read whose the name is.
        desk.proxy.arm(faults.FORBIDDEN, skip=1, times=None)
        exchange.answer(exchange.forward())

    desk.proxy.arm(lose_the_race, Operation.PUT, key="record/")
    # when it advances
    advanced = asyncio.run(supervisor.advance())
    # then that is a trouble to wait out, as any other, and it goes on once the server is itself again
    assert "403" in advanced.trouble
    desk.proxy.disarm()
    assert asyncio.run(carry(desk, supervisor)) is Outcome.SUCCEEDED
    desk.check_facts()
