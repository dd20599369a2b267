"""A run that waits for a person, and a record that goes away meanwhile: it is waited for, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Paused, Running

from prefect_dispatch.flows.holding import Holding
from prefect_dispatch.model.facts import CarriedBy, HoldLifted, StopRequested
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler
from support.settling import settle


class Bench:
    """A job that was suspended in its flow run and is held for that; and the Prefect that its run asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "records"
        self.clock = Returning(self)
        self.run = FlowRun(id=uuid4(), flow_id=uuid4(), name="supervise-digits", deployment_id=uuid4())
        self.lost_after: int | None = None
        record = open_record(str(self.folder), "digits", self.clock)
        record.append(plain_opening(SCRIPTED, root_visible=False))
        record.append(CarriedBy(flow_run=str(self.run.id)))
        note = f"flow run {self.run.id} was suspended, state {uuid4()}"
        record.append(StopRequested(intent="suspend", who="ada", note=note))
        supervisor = Supervisor(record, ScriptedScheduler(self.clock.now), None, self.clock)
        self.state = asyncio.run(settle(supervisor)).state
        assert self.state.hold is not None
        self.told: list[str] = []
        self.holding = Holding(record, supervisor, self.run.id, Announcing(self.told))

    def is_in(self, state: State) -> None:
        self.run = self.run.model_copy(update={"state": state})

    def look(self) -> FlowRun:
        """Answer who asks for the run. The record goes away, once, after as many answers as were set."""
        if self.lost_after is not None:
            self.lost_after -= 1
            if self.lost_after < 0:
                self.lost_after = None
                self.folder.rename(self.folder.with_name("away"))
        return self.run

    def facts(self, kind: type) -> list:
        record = open_record(str(self.folder), "digits", self.clock)
        record.refresh()
        return [entry.fact for entry in record.entries() if isinstance(entry.fact, kind)]


class Returning(ManualClock):
    """A clock on which a record comes back when it has been waited for three times."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.waits = 0

    async def sleep(self, seconds: float) -> None:
        away = self._bench.folder.with_name("away")
        if away.exists():
            self.waits += 1
            if self.waits == 3:
                away.rename(self._bench.folder)
        await super().sleep(seconds)


class Announcing(Announcer):
    """Keeps what Prefect would be told."""

    def __init__(self, told: list[str]) -> None:
        super().__init__("digits", "record")
        self._told = told

    def lifted(self, lifted: HoldLifted) -> None:
        self._told.append(lifted.resolution)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path)

    class Prefect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.rstrip("/").endswith(f"flow_runs/{bench.run.id}")
            self.answer(200 if asked else 404, bench.look().model_dump(mode="json") if asked else {"detail": "no"})

        def do_PATCH(self) -> None:
            changes = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bench.run = bench.run.model_copy(update=changes)
            # What a person does then, to a run that is seen to be held.
            if "held" in bench.run.tags:
                bench.is_in(Cancelled())
                bench.lost_after = 0
            self.answer(204, None)

        def answer(self, status: int, body: object) -> None:
            self.send_response(status)
            text = b"" if body is None else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Prefect)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr("prefect_dispatch.flows.holding.get_run_logger", lambda: logging.getLogger("run"))
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{server.server_port}/api"}):
        yield bench
    server.shutdown()
    thread.join()
    server.server_close()


def assert_told_once(caplog: pytest.LogCaptureFixture, trouble: str) -> None:
    """That it began, and that it is over."""
    told = [each.getMessage() for each in caplog.records if trouble in each.getMessage()]
    assert ["this is over: " in each for each in told] == [False, True], told


def test_an_answer_is_read_once_the_record_is_back_before_the_job_goes_on(bench, caplog):
    # given a run that a person has resumed, which answers the hold
    bench.is_in(Running())
    # when its process comes, and the record goes away while the answer is looked for
    bench.lost_after = 0
    asyncio.run(bench.holding.take_up(bench.state))
    # then it was waited for, which was told once, and the answer counts
    assert bench.clock.waits == 3
    assert [fact.resolution for fact in bench.facts(HoldLifted)] == ["run_again"]
    assert bench.told == ["run_again"]
    assert_told_once(caplog, "answers cannot be read yet: ")


def test_a_run_that_begins_to_wait_goes_on_with_the_answer_once_the_record_is_back(bench, caplog):
    # given the same, but it was not resumed before its process waits
    bench.is_in(Running())
    # when the record goes away between the look at it and the look for an answer
    bench.lost_after = 1
    assert asyncio.run(bench.holding.wait())
    # then
    assert bench.clock.waits == 3
    assert [fact.resolution for fact in bench.facts(HoldLifted)] == ["run_again"]
    assert_told_once(caplog, "the hold cannot be looked after: ")


def test_what_is_asked_of_a_waiting_run_while_the_record_is_away_is_written_down_later(bench, caplog):
    # given a run that waits as a process, as the person left it who suspended it
    bench.is_in(Paused())
    bench.run = bench.run.model_copy(update={"deployment_id": None})
    # when it is cancelled, and the record goes away before that is written down
    assert asyncio.run(bench.holding.wait())
    # then it is, once the record is back
    assert bench.clock.waits == 3
    assert [fact.resolution for fact in bench.facts(HoldLifted)] == ["stop"]
    assert "held" not in bench.run.tags
    assert_told_once(caplog, "the hold cannot be looked after: ")
