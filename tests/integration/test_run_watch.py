"""A run that looks at itself, where what answers is not Prefect: its signs of life wait for nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from prefect_dispatch.supervisor.beating import beating
from prefect_dispatch.supervisor.beats import BEAT_EVERY, Heart, last_beats
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.tasks.run_watch import LOOK_EVERY_SECONDS, RunWatch
from prefect_dispatch.testing.manual_clock import ManualClock

ONE_MORE = BEAT_EVERY * 1.5
"""What ``reconcile`` waits for one more sign of life."""


class Page(BaseHTTPRequestHandler):
    """What a proxy says for a server that is away: a page, and that all is well."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>please wait</html>")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class SlowWaits(ManualClock):
    """Whoever sleeps here sleeps for as long by this clock, however many do so at once."""

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while self.monotonic() < until:
            await asyncio.sleep(0.001)


async def oldest_sign(root: str, clock: SlowWaits, during: timedelta, looks: int) -> timedelta:
    """Let time pass, and return how old the newest sign of life ever became; wait for as many requests too."""
    oldest, end = timedelta(0), clock.now() + during
    await first_sign(root)
    while clock.now() < end or Page.asked < looks:
        clock.turn(timedelta(seconds=1))
        for _ in range(10):
            # Threads and requests take real time, which the clock's must not run away from.
            await asyncio.sleep(0.001)
        (newest,) = last_beats(root).values()
        oldest = max(oldest, clock.now() - newest)
    return oldest


async def first_sign(root: str) -> None:
    async with asyncio.timeout(20):
        while not last_beats(root):
            await asyncio.sleep(0.001)


@pytest.fixture
def root(tmp_path) -> str:
    return str(tmp_path)


def test_signs_of_life_and_looks_go_on_whatever_answers_and_however_seldom_the_scheduler_is_asked(root, caplog):
    # given a scheduler that is asked every ten minutes, and a proxy's page where Prefect was
    clock, run = SlowWaits(), uuid4()
    heart = Heart(root, "digits", str(run), clock)
    record = open_record(root, "digits", clock)
    begun = clock.now()

    async def watch() -> timedelta:
        async with RunWatch(record, run, heart, clock, 600.0, logging.getLogger("watch")):
            return await oldest_sign(root, clock, timedelta(minutes=6), looks=3)

    # when time passes
    with answering(Page) as url, temporary_settings({PREFECT_API_URL: url}):
        oldest = asyncio.run(watch())
    # then nobody could take this process for dead
    assert oldest < ONE_MORE
    # and it looked all the time, and told once what was wrong
    assert (clock.now() - begun) / Page.asked < timedelta(seconds=3 * LOOK_EVERY_SECONDS)
    told = [each.getMessage() for each in caplog.records if each.name == "watch"]
    assert len(told) == 1 and "cannot be seen: " in told[0]
    # and with its end the sign is gone
    assert last_beats(root) == {}


class FailingOnce(Heart):
    """One whose first sign fails in a way that nobody thought of."""

    failed = False

    def beat(self) -> None:
        if not self.failed:
            self.failed = True
            raise RuntimeError("the store's client is broken")
        super().beat()


def test_a_sign_that_fails_is_told_once_and_the_next_one_is_given(root):
    clock, told = SlowWaits(), list[str]()

    async def beat() -> None:
        async with beating(FailingOnce(root, "digits", "x", clock), clock, told.append):
            async with asyncio.timeout(20):
                while not last_beats(root) or len(told) < 2:
                    clock.turn(timedelta(seconds=1))
                    await asyncio.sleep(0.01)

    asyncio.run(beat())
    assert [each.partition(": ")[0] for each in told] == ["no sign of life can be given"] * 2
    assert "RuntimeError: the store's client is broken" in told[0] and "this is over" in told[1]
