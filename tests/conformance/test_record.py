"""The record, over every store: compare-and-append, snapshots, the open index, damage."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest

from prefect_dispatch.errors import (
    Exists,
    MalformedDocument,
    MalformedName,
    ReadOnlyLineage,
    StoreError,
    StoreUnreachable,
)
from prefect_dispatch.format.documents import FORMAT, encode
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import CarriedBy, Finished, HoldOpened, Outcome, Reopened, StopRequested
from prefect_dispatch.model.fold import FOLD_VERSION, fold
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.record import SNAPSHOT_EVERY, Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from support.s3.access import new_url, store_at


@pytest.fixture(params=["posix", "memory", "s3"])
def stores(request, tmp_path):
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        url = new_url(server, "records")
        return store_at(server, f"{url}/digits"), store_at(server, url)
    if request.param == "posix":
        stores = PosixStore(tmp_path / "digits"), PosixStore(tmp_path)
        stores[0].probe()
        return stores
    return MemoryStore(), MemoryStore()


@pytest.fixture
def make(stores):
    def make_record(writer: str | None = None) -> Record:
        return Record(stores[0], stores[1].ledger("open"), "digits", ManualClock(), writer)

    return make_record


def test_facts_come_back_in_order_to_another_reader(make):
    # given
    record = make("me")
    record.append(plain_opening())
    record.append(CarriedBy(flow_run="run-1"))
    # when
    entries = make().entries()
    # then
    assert [entry.seq for entry in entries] == [1, 2]
    assert [entry.fact.kind for entry in entries] == ["opened", "carried_by"]
    assert {entry.by for entry in entries} == {"me"}
    assert make().refresh() == fold(entries)


def test_of_two_who_read_the_same_state_one_appends(make):
    # given
    first, second = make(), make()
    first.append(plain_opening())
    first.refresh(), second.refresh()
    # when
    first.append(CarriedBy(flow_run="first"))
    # then
    with pytest.raises(Exists):
        second.append(CarriedBy(flow_run="second"))
    assert second.refresh().carried_by == "first"
    assert second.append(CarriedBy(flow_run="second")).carried_by == "second"


def test_32_writers_lose_nothing_and_leave_no_gap(make):
    # given
    make().append(plain_opening())
    barrier = threading.Barrier(32)
    faults: list[BaseException] = []

    def write(name: str) -> None:
        record = make(name)
        barrier.wait()
        try:
            while True:
                try:
                    record.refresh()
                    record.append(CarriedBy(flow_run=name))
                    return
                except Exists:
                    continue
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(f"writer-{n}",)) for n in range(32)]
    # when
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # then
    assert faults == []
    entries = make().entries()
    assert [entry.seq for entry in entries] == list(range(1, 34))
    assert {entry.fact.flow_run for entry in entries[1:]} == {f"writer-{n}" for n in range(32)}


def test_a_reply_that_was_lost_is_ones_own_success(make, stores, monkeypatch):
    # given a store that stores, then says that the name is taken, as a retried request does
    record = make()
    record.append(plain_opening())
    create = record._facts.create

    def stored_then_refused(name: str, content: bytes) -> None:
        create(name, content)
        raise Exists(f"{name} exists")

    monkeypatch.setattr(record._facts, "create", stored_then_refused)
    # when
    state = record.append(CarriedBy(flow_run="mine"))
    # then
    assert state.carried_by == "mine"
    assert len(make().entries()) == 2


def test_reading_begins_at_the_newest_snapshot_and_comes_to_the_same(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    for n in range(SNAPSHOT_EVERY + 10):
        record.append(CarriedBy(flow_run=f"run-{n}"))
    snapshots = stores[0].ledger(f"fold/{FOLD_VERSION}").names()
    # when the facts before the snapshot can not be read any more
    stores[0].ledger("record").remove(f"{3:020d}.json")
    fresh = make()
    state = fresh._newest_snapshot()
    # then
    assert snapshots == [f"{SNAPSHOT_EVERY:020d}.json"]
    assert state.seq == SNAPSHOT_EVERY
    assert fresh.refresh() == record.refresh()


def test_a_snapshot_that_is_damaged_is_passed_over(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    for n in range(SNAPSHOT_EVERY):
        record.append(CarriedBy(flow_run=f"run-{n}"))
    snapshots = stores[0].ledger(f"fold/{FOLD_VERSION}")
    snapshots.create(f"{SNAPSHOT_EVERY + 1:020d}.json", encode({"format": FORMAT, "state": {"seq": "many"}}))
    # when
    state = make().refresh()
    # then
    assert state == record.refresh()


def test_the_open_index_follows_opening_and_finish(make, stores):
    # given
    index = stores[1].ledger("open")
    record = make()
    # when
    record.append(plain_opening())
    while_open = index.names()
    record.append(Finished(outcome=Outcome.SUCCEEDED))
    # then
    assert while_open == ["digits"]
    assert index.names() == []


def test_who_looks_at_a_finished_lineage_ends_what_its_finisher_left_undone(make, stores):
    # given a lineage whose supervisor died right after it had written that it is finished
    index = stores[1].ledger("open")
    record = make()
    record.append(plain_opening())
    record.append(Finished(outcome=Outcome.SUCCEEDED))
    index.create("digits")
    # when another one looks
    later = make()
    later.refresh()
    later.settle_index()
    # then the lineage is open to nobody any more, and doing so again is nothing
    assert index.names() == []
    later.settle_index()
    assert index.names() == []


def test_a_lineage_that_was_reopened_meanwhile_stays_in_the_index(make, stores):
    # given one who has read that a lineage is finished, and another one who reopens it
    index = stores[1].ledger("open")
    record = make()
    record.append(plain_opening())
    record.append(Finished(outcome=Outcome.SUCCEEDED))
    late = make()
    assert late.refresh().finished is not None
    record.append(Reopened(who="someone"))
    # when the first one goes on
    late.settle_index()
    # then
    assert index.names() == ["digits"]


class FinisherAtWork:
    """The index of open lineages, where the last generation's mark is taken away right after somebody saw it."""

    def __init__(self, index):
        self._index = index

    def __getattr__(self, name):
        return getattr(self._index, name)

    def create(self, name, data=b""):
        try:
            self._index.create(name, data)
        except Exists:
            self._index.remove(name)
            raise


@pytest.mark.parametrize("fact", [plain_opening(), Reopened(who="someone")], ids=lambda fact: fact.kind)
def test_the_last_finisher_takes_the_mark_of_its_own_generation_only(make, stores, fact):
    # given a lineage whose finisher has not taken it out of the index yet
    index = stores[1].ledger("open")
    record = make()
    record.append(plain_opening())
    record.append(Finished(outcome=Outcome.SUCCEEDED))
    index.create("digits")
    # when it does so between the mark and the fact of who opens the lineage once more
    opener = Record(stores[0], FinisherAtWork(index), "digits", ManualClock())
    opener.refresh()
    opener.append(fact)
    # then
    assert index.names() == ["digits"]


def test_who_read_an_open_lineage_marks_none_that_is_finished_by_now(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    late = make()
    assert late.refresh().open
    record.append(Finished(outcome=Outcome.SUCCEEDED))
    # when
    late.settle_index()
    # then
    assert stores[1].ledger("open").names() == []


def test_who_looks_at_an_open_lineage_puts_it_into_the_index(make, stores):
    # given one whose opener died right after the fact
    index = stores[1].ledger("open")
    make().append(plain_opening())
    index.remove("digits")
    # when
    later = make()
    later.refresh()
    later.settle_index()
    # then
    assert index.names() == ["digits"]


@pytest.mark.parametrize("name", ["readme", "1.json", f"{0:020d}.json", f"{4:020d}.json.tmp", "²" * 20 + ".json"])
def test_a_malformed_name_is_named_and_never_skipped(make, stores, name):
    # given
    make().append(plain_opening())
    stores[0].ledger("record").create(name, b"{}\n")
    # when
    with pytest.raises(MalformedName) as caught:
        make().refresh()
    # then
    assert name in str(caught.value)
    assert caught.value.exit_code == 65


def test_a_missing_fact_in_the_middle_is_named(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    for n in range(3):
        record.append(CarriedBy(flow_run=str(n)))
    stores[0].ledger("record").remove(f"{3:020d}.json")
    # when
    with pytest.raises(MalformedDocument) as caught:
        make().refresh()
    # then
    assert f"{3:020d}.json is missing" in str(caught.value)


def test_a_fact_of_an_unknown_kind_makes_the_lineage_read_only_and_says_so(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    fact = {**record.entries()[0].document(), "seq": 2, "kind": "teleported"}
    stores[0].ledger("record").create(f"{2:020d}.json", encode(fact))
    # when
    other = make()
    state = other.refresh()
    # then
    assert state.seq == 1
    assert "teleported" in (other.unreadable or "")
    with pytest.raises(ReadOnlyLineage):
        other.append(StopRequested(intent="abandon"))


def test_a_fact_of_a_newer_format_makes_the_lineage_read_only(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    fact = {**record.entries()[0].document(), "seq": 2, "format": FORMAT + 1}
    stores[0].ledger("record").create(f"{2:020d}.json", encode(fact))
    # when
    other = make()
    other.refresh()
    # then
    with pytest.raises(ReadOnlyLineage):
        other.append(CarriedBy(flow_run="run"))


def test_the_id_is_made_once_and_shared(make):
    assert make().id() == make().id()
    assert len(make().id()) == 32


def test_facts_carry_the_clock_and_a_nonce_of_their_own(make, stores):
    # given
    clock = ManualClock()
    record = Record(stores[0], stores[1].ledger("open"), "digits", clock)
    record.append(plain_opening())
    clock.turn(timedelta(hours=1))
    record.append(CarriedBy(flow_run="run"))
    # when
    first, second = record.entries()
    # then
    assert second.at - first.at == timedelta(hours=1)
    assert first.nonce != second.nonce
    assert json.loads(first.encode())["format"] == FORMAT


def test_a_record_that_went_away_is_not_begun_anew(make, stores):
    # given a supervisor that has read a record, which is gone meanwhile
    record = make()
    record.append(plain_opening())
    record.append(CarriedBy(flow_run="run"))
    facts = stores[0].ledger("record")
    kept = {name: facts.read(name) for name in facts.names()}
    for name in kept:
        facts.remove(name)
    # when
    with pytest.raises(StoreUnreachable, match="not there any more"):
        record.append(StopRequested(intent="abandon"))
    with pytest.raises(StoreUnreachable):
        record.refresh()
    # then nothing was written, and it goes on when the record is back
    assert facts.names() == []
    for name, content in kept.items():
        facts.create(name, content)
    assert record.append(CarriedBy(flow_run="later")).seq == 3


def test_a_fact_that_was_replaced_under_us_is_noticed(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    facts = stores[0].ledger("record")
    facts.remove(f"{1:020d}.json")
    make().append(plain_opening())
    # when / then
    with pytest.raises(StoreUnreachable):
        record.append(CarriedBy(flow_run="run"))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_record_that_lost_facts_is_damaged_and_is_not_gone_on_with(make, stores, goes_on):
    # given a record of which an older copy was restored, while a snapshot is left of what came after that
    record = make()
    record.append(plain_opening())
    for n in range(58):
        record.append(CarriedBy(flow_run=f"run-{n}"))
    behind = make()
    behind.refresh()
    for n in range(58, SNAPSHOT_EVERY - 1):
        record.append(CarriedBy(flow_run=f"run-{n}"))
    for seq in range(60, SNAPSHOT_EVERY + 1):
        stores[0].ledger("record").remove(f"{seq:020d}.json")
    if goes_on:  # as a supervisor does that has never read the rest
        for n in range(58, SNAPSHOT_EVERY - 1):
            behind.append(CarriedBy(flow_run=f"another-{n}"))
    # when somebody looks anew, then it is neither the old life nor the new one that is gone on with
    with pytest.raises(MalformedDocument, match=r"was made of facts that .* lacks: restore them"):
        make().refresh()
    # until a person has accepted the loss
    for name in stores[0].ledger(f"fold/{FOLD_VERSION}").names():
        stores[0].ledger(f"fold/{FOLD_VERSION}").remove(name)
    assert make().refresh().seq == (SNAPSHOT_EVERY if goes_on else 59)


def test_a_record_without_its_document_is_not_given_another_id(make, stores):
    # given
    record = make()
    record.append(plain_opening())
    stores[0].ledger("").remove("record.json")
    # when
    for each in (make(), record):
        each.refresh()
        each._id = None
        with pytest.raises(StoreUnreachable, match=r"record\.json is not there although facts are; bring it back"):
            each.id()
    # then
    assert "record.json" not in stores[0].ledger("").names()


def test_a_hold_and_a_request_put_an_open_lineage_into_the_index(make, stores):
    # given a record root whose index was lost
    record = make()
    record.append(plain_opening())
    for fact in (
        HoldOpened(hold="h2", why="ask", cause=Cause.FAILED, stands_for="hold", restart=0),
        StopRequested(intent="abandon", who="ada"),
    ):
        stores[1].ledger("open").remove("digits")
        # when
        record.append(fact)
        # then whoever looks after such finds it
        assert stores[1].ledger("open").names() == ["digits"]


def test_reading_all_facts_of_a_record_that_has_gone_on_does_no_harm(make):
    # given a supervisor that stands behind
    behind = make()
    behind.append(plain_opening())
    other = make()
    other.refresh()
    other.append(CarriedBy(flow_run="other"))
    # when
    assert len(behind.entries()) == 2
    # then
    assert behind.refresh().carried_by == "other"
    assert behind.append(CarriedBy(flow_run="mine")).seq == 3


def test_a_read_that_fails_on_the_way_is_made_good_by_the_next(make, monkeypatch):
    # given two new facts, of which the second cannot be read for a moment
    behind, other = make(), make()
    behind.append(plain_opening())
    other.refresh()
    for name in ("one", "two"):
        other.append(CarriedBy(flow_run=name))
    read = behind._facts.read

    def fail(name: str) -> bytes:
        if name == f"{3:020d}.json":
            raise StoreError("Input/output error")
        return read(name)

    with monkeypatch.context() as patch:
        patch.setattr(behind._facts, "read", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            behind.refresh()
    # when / then
    assert behind.refresh().carried_by == "two"


def test_a_malformed_name_is_named_as_long_as_it_is_there(make, stores):
    # given
    make().append(plain_opening())
    stores[0].ledger("record").create("readme")
    record = make()
    # when / then
    for _ in range(2):
        with pytest.raises(MalformedName, match="readme"):
            record.refresh()
        with pytest.raises(MalformedName, match="readme"):
            record.append(CarriedBy(flow_run="run"))
