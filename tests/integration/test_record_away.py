"""A record that is away for a while: whoever has read it before waits, and says so once."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError, StoreError, StoreUnreachable
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.drive import JobOver, drive
from prefect_dispatch.supervisor.patience import PatientReader
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_answer import times_out
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle


class Stage:
    """A lineage whose record lies in a folder that can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "records"
        self.clock = Returning(self)
        self.scheduler = ScriptedScheduler(self.clock.now)
        self.index = MemoryStore()
        self.store = PosixStore(self.folder / "digits")
        self.store.probe()
        self.record().append(plain_opening(SCRIPTED, root_visible=False))

    def record(self) -> Record:
        store = PosixStore(self.folder / "digits")
        return Record(store, self.index.ledger("open"), "digits", self.clock)

    def supervisor(self) -> Supervisor:
        record = self.record()
        record.refresh()
        return Supervisor(record, self.scheduler, None, self.clock)

    def go_away(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def come_back(self) -> None:
        if not self.folder.exists():
            self.folder.with_name("away").rename(self.folder)


class Returning(ManualClock):
    """A clock on which a record comes back when it has been waited for three times."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self.sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)
        await asyncio.sleep(0)

    def pass_by(self, seconds: float) -> None:
        self.sleeps += 1
        if self.sleeps % 3 == 0:
            self._stage.come_back()


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@contextmanager
def away_during(stage, owner, name):
    """Have a call of a port take the record away before it answers."""
    call = getattr(owner, name)

    async def call_and_lose(*given):
        stage.go_away()
        setattr(owner, name, call)
        return await call(*given)

    setattr(owner, name, call_and_lose)
    yield


async def test_what_was_never_read_is_an_error(stage):
    # given a record whose disk fails
    fact = stage.folder / "digits" / "record" / f"{1:020d}.json"
    fact.unlink()
    fact.mkdir()
    # then
    supervisor = Supervisor(stage.record(), stage.scheduler, None, stage.clock)
    for call in (supervisor.advance, supervisor.read, lambda: supervisor.append(CarriedBy(flow_run="ann"))):
        with pytest.raises(StoreError):
            await call()


async def test_reading_waits_and_tells_once(stage):
    # given
    supervisor, told = stage.supervisor(), []
    stage.go_away()
    # when
    state = await supervisor.read(told.append)
    # then
    assert state.opened is not None and stage.clock.sleeps == 3
    text, over = told
    assert "is not there" in text or "not there any more" in text
    assert over.startswith("digits: this is over: ")


async def test_who_takes_a_lineage_over_is_written_down_once_the_record_is_back(stage):
    # given
    supervisor, told = stage.supervisor(), []
    stage.go_away()
    # when
    state = await supervisor.append(CarriedBy(flow_run="ann"), told.append)
    # then
    assert state.carried_by == "ann" and len(told) == 2


@pytest.mark.parametrize("call", ["submit", "observe"])
async def test_a_record_that_goes_away_in_the_middle_of_an_advance_ends_nothing(stage, call):
    # given
    supervisor = stage.supervisor()
    if call == "observe":
        await settle(supervisor)
    # when
    with away_during(stage, stage.scheduler, call):
        away = await supervisor.advance()
    stage.come_back()
    state = (await settle(supervisor)).state
    # then
    assert away.trouble
    assert state.newest.object is not None and list(stage.scheduler.submit_calls.values()) == [1]


async def test_a_record_that_goes_away_behind_a_scheduler_that_fails_ends_nothing(stage):
    # given a submit that fails
    stage.scheduler.script_submit(times_out(takes_effect_after=None))
    supervisor = stage.supervisor()
    # when
    with away_during(stage, stage.scheduler, "submit"):
        away = await supervisor.advance()
    stage.come_back()
    # then
    assert away.trouble
    assert (await settle(supervisor)).state.newest.n == 1


def test_the_id_of_a_record_that_was_read_is_not_made_anew(stage):
    # given
    record = stage.record()
    record.refresh()
    stage.go_away()
    # then
    with pytest.raises(StoreUnreachable):
        record.id()
    assert not stage.folder.exists()


@pytest.mark.parametrize("what", ["digits", "digits/record"])
def test_a_lineage_whose_folder_was_moved_is_not_taken_for_one_that_was_never_opened(stage, what):
    # given
    (stage.folder / what).rename(stage.folder / "moved")
    # when somebody looks who has never read it, or wants to begin it, then that is an outage, and nothing is made
    for ask in (Record.refresh, Record.entries, lambda record: record.append(plain_opening(SCRIPTED))):
        with pytest.raises(StoreUnreachable, match="bring it back"):
            ask(stage.record())
    assert not (stage.folder / what).exists()
    # and when it is back, it is what it was
    (stage.folder / "moved").rename(stage.folder / what)
    assert stage.record().refresh().open


async def test_driving_begins_and_goes_on_while_the_record_is_away(stage):
    # given a job whose object has ended while nobody looked, and whose record is away
    first = stage.supervisor()
    state = (await settle(first)).state
    stage.scheduler.start(state.newest.object)
    await settle(first)
    stage.scheduler.end(state.newest.object, Cause.STOPPED)
    supervisor, told, troubles = stage.supervisor(), [], []
    stage.go_away()

    async def after_each(advanced) -> None:
        if advanced.trouble:
            troubles.append(advanced.trouble)

    # when
    happening = await drive(supervisor, carrier=None, after_each=after_each, tell=told.append)
    # then
    assert isinstance(happening, JobOver)
    assert len(told) == 2 and troubles == []


async def test_a_log_tells_of_an_outage_once(stage, caplog):
    # given
    supervisor = stage.supervisor()
    await settle(supervisor)
    # when it is away twice
    for _ in range(2):
        stage.go_away()
        for _ in range(3):
            await supervisor.advance()
        stage.come_back()
        await supervisor.advance()
    # then
    begun, over, *again = warnings(caplog, "record.trouble")
    assert "is not there" in begun and over == f"digits: this is over: {begun.removeprefix('digits: ')}"
    assert again == [begun, over]


def make_unwritable(stage):
    """Have the record be read and not written: the folder that new facts are made in is none."""
    shutil.rmtree(stage.folder / "digits" / "tmp")
    (stage.folder / "digits" / "tmp").touch()


def make_writable(stage):
    (stage.folder / "digits" / "tmp").unlink()


async def test_a_log_tells_once_of_a_record_that_can_be_read_and_not_written(stage, caplog):
    # given an object that has started, which cannot be noted
    supervisor = stage.supervisor()
    state = (await settle(supervisor)).state
    stage.scheduler.start(state.newest.object)
    make_unwritable(stage)
    # when it is tried again and again, with readings in between; meanwhile it is away altogether
    for _ in range(3):
        assert (await supervisor.advance()).trouble
        await supervisor.read()
    stage.go_away()
    for _ in range(3):
        assert (await supervisor.advance()).trouble
    stage.come_back()
    for _ in range(3):
        assert (await supervisor.advance()).trouble
    make_writable(stage)
    state = (await settle(supervisor)).state
    # then
    assert state.newest.newest is not None
    first, away, back, again, over = warnings(caplog, "record.trouble")
    assert again == first and "Not a directory" in first and "is not there" in away
    assert back == f"digits: this is over: {away.removeprefix('digits: ')}"
    assert over == f"digits: this is over: {first.removeprefix('digits: ')}"


async def test_who_writes_a_fact_into_such_a_record_is_told_once_too(stage):
    # given
    supervisor, told = stage.supervisor(), []
    make_unwritable(stage)
    stage.come_back = lambda: make_writable(stage)
    # when
    state = await supervisor.append(CarriedBy(flow_run="ann"), told.append)
    # then
    assert state.carried_by == "ann" and stage.clock.sleeps == 3
    assert len(told) == 2 and "this is over" in told[1]


async def test_a_log_tells_once_of_a_scheduler_that_does_not_answer(stage, caplog):
    # given
    supervisor = stage.supervisor()
    await settle(supervisor)
    # when it is away for three looks, then for another reason
    for reason in ("slurmdbd is down", "slurmdbd is down", "slurmdbd is down", "Socket timed out"):
        stage.scheduler.outage = SchedulerError(reason)
        assert (await supervisor.advance()).trouble == reason
    stage.scheduler.outage = None
    await settle(supervisor)
    await supervisor.advance()
    # then
    assert warnings(caplog, "scheduler.trouble") == [
        "digits: slurmdbd is down",
        "digits: Socket timed out",
        "digits: this is over: Socket timed out",
    ]


def warnings(caplog, action):
    """The warnings of one action, in order."""
    return [each.getMessage() for each in caplog.records if getattr(each, "action", "") == action]


def test_a_reader_goes_on_with_what_it_knew_and_tells_once(stage):
    # given
    told = []
    reader = PatientReader(stage.record(), told.append, stage.clock.pass_by)
    known = reader.read()
    # when
    stage.go_away()
    meanwhile = [reader.read() for _ in range(3)]
    back = reader.wait()
    # then
    assert meanwhile == [known] * 3 and back == known
    assert len(told) == 2 and told[1] == f"this is over: {told[0]}"
    # and the next time is told of again
    stage.go_away()
    reader.read()
    assert len(told) == 3
