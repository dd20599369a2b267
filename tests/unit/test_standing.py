"""Whether somebody carries a lineage, and what the state of a flow run asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.states import (
    AwaitingRetry,
    Cancelled,
    Cancelling,
    Completed,
    Crashed,
    Failed,
    Paused,
    Pending,
    Running,
    Scheduled,
    Suspended,
)

from prefect_dispatch.model.facts import CarriedBy, Entry, Opened, Reopened
from prefect_dispatch.supervisor.beats import DEAD_AFTER, UNVOUCHED_AFTER
from prefect_dispatch.supervisor.carriers import Carrier, carrier_of, settled_at
from prefect_dispatch.tasks.adoption import LONGEST_DELAY, delay_before
from prefect_dispatch.tasks.standing import Signs, Standing, is_silent, standing_of
from prefect_dispatch.tasks.wishes import Wish, wish_of
from prefect_dispatch.testing.plain_opening import plain_opening

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LONG_AGO, JUST_NOW = NOW - DEAD_AFTER - timedelta(seconds=1), NOW - timedelta(seconds=20)
QUESTION = {"pause_key": "hold-h7-1"}


def run_in(state, at: datetime = LONG_AGO) -> FlowRun:
    return FlowRun(flow_id=uuid4(), state=state.model_copy(update={"timestamp": at}))


def standing(run: FlowRun | None, beat: datetime | None = None, carried: bool = True) -> Standing:
    carrier = Carrier("run", LONG_AGO) if carried else None
    return standing_of(Signs(carrier, run, beat, LONG_AGO), NOW)


@pytest.mark.parametrize(
    ("state", "wish"),
    [
        (Cancelling(), Wish.STOP),
        (Cancelled(), Wish.STOP),
        (Cancelled(message="Flow run cancellation timed out; marked this flow run as Cancelled."), Wish.STOP),
        (Suspended(timeout_seconds=300), Wish.SUSPEND),
        (Paused(timeout_seconds=300), Wish.SUSPEND),
        (Suspended(**QUESTION), None),
        (Paused(**QUESTION), None),
        (Cancelled(name="HandedOver"), None),
        (Cancelled(name="Stopped"), None),
        (Cancelled(message="Deployment concurrency limit reached."), None),
        (Cancelled(message=f"Deployment {uuid4()} no longer exists, cancelled run."), None),
        (Running(), None),
        (Crashed(), None),
        (Completed(), None),
        (None, None),
    ],
)
def test_a_state_asks_for_something_only_if_a_person_has_set_it(state, wish):
    assert wish_of(state) is wish


@pytest.mark.parametrize(
    ("state", "silent", "lively"),
    [
        (Running(), Standing.LOST, Standing.CARRIED),
        (Pending(), Standing.LOST, Standing.CARRIED),
        (Paused(**QUESTION), Standing.LOST, Standing.CARRIED),
        (Suspended(**QUESTION), Standing.WAITS, Standing.WAITS),
        (Scheduled(), Standing.CARRIED, Standing.CARRIED),
        (AwaitingRetry(), Standing.CARRIED, Standing.CARRIED),
        (Crashed(), Standing.LOST, Standing.LOST),
        (Failed(name="Held"), Standing.LOST, Standing.LOST),
        (Cancelled(name="HandedOver"), Standing.LOST, Standing.LOST),
        (Cancelled(), Standing.WISHED, Standing.WISHED),
        (Suspended(), Standing.WISHED, Standing.WISHED),
    ],
)
def test_signs_of_life_count_where_there_should_be_a_process(state, silent, lively):
    assert standing(run_in(state)) is silent
    assert standing(run_in(state), JUST_NOW) is lively
    assert is_silent(run_in(state), None, NOW) is (silent is not lively)
    # one that has come into its state just now is given time
    assert not is_silent(run_in(state, JUST_NOW), None, NOW)


def test_a_run_that_prefect_does_not_know_may_be_another_servers():
    assert standing(None) is Standing.LOST
    assert standing(None, JUST_NOW) is Standing.CARRIED
    assert standing(None, carried=False) is Standing.LOST
    assert standing_of(Signs(None, None, None, JUST_NOW), NOW) is Standing.CARRIED


def test_a_held_job_whose_run_another_server_may_know_is_given_the_time_that_its_poller_takes():
    carrier, second = Carrier("run", NOW - timedelta(days=9)), timedelta(seconds=1)

    def held(beat: datetime | None, touched: datetime) -> Standing:
        return standing_of(Signs(carrier, None, beat, touched, held=True), NOW)

    gone = NOW - UNVOUCHED_AFTER - second
    assert held(None, gone) is Standing.LOST
    assert held(gone, gone) is Standing.LOST
    assert held(gone + 2 * second, gone) is Standing.CARRIED
    # It was held just now, and its poller has had no time to say so.
    assert held(None, gone + 2 * second) is Standing.CARRIED


def opening() -> Opened:
    return plain_opening(root_visible=True)


def entries(*facts) -> list[Entry]:
    return [
        Entry(seq=seq, at=NOW, by="w", nonce="n", generation=0, fact=fact) for seq, fact in enumerate(facts, start=1)
    ]


def test_the_last_run_carries_until_the_job_is_taken_up_again():
    first, second = CarriedBy(flow_run="first"), CarriedBy(flow_run="second")
    assert carrier_of(entries()) is None
    assert carrier_of(entries(first, second)).flow_run == "second"
    assert carrier_of(entries(first, Reopened())) is None
    assert carrier_of(entries(Reopened(), first)).flow_run == "first"
    late = entries(Reopened(), first)
    late[0] = late[0].model_copy(update={"generation": 1, "fact": opening()})
    assert carrier_of(late) is None
    assert settled_at(entries(first, Reopened(), second, first)) == 2
    assert settled_at(entries(first)) == 0


def test_what_takes_over_in_vain_is_followed_ever_later():
    delays = [delay_before(number) for number in range(30)]
    assert delays[:2] == [timedelta(0)] * 2
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY
