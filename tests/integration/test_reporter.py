"""Reports that are made beside a job: one after the other, whatever becomes of each."""

from __future__ import annotations

import asyncio
import logging

import pytest

from prefect_dispatch.tasks import reporter as reporting
from prefect_dispatch.tasks.reporter import Reporter


@pytest.fixture(autouse=True)
def own_logger(monkeypatch):
    """A logger that needs no flow run."""
    monkeypatch.setattr(reporting, "get_run_logger", lambda: logging.getLogger("reports"))


def test_reports_are_made_one_after_the_other_in_the_order_of_asking():
    # given three reports that take a while each
    begun_and_ended: list[str] = []

    async def report(name: str) -> None:
        begun_and_ended.append(f"{name} begins")
        for _ in range(10):
            await asyncio.sleep(0)
        begun_and_ended.append(f"{name} ends")

    async def make() -> None:
        reporter = Reporter()
        for name in ("progress", "last progress", "try 1", "progress"):
            reporter.soon(name, report(name))
        await reporter.finish()

    # when they are asked for at once, one of them twice
    asyncio.run(make())
    # then none begins before the last one has ended, and none is made twice
    names = ("progress", "last progress", "try 1")
    assert begun_and_ended == [f"{name} {word}" for name in names for word in ("begins", "ends")]


def test_a_report_that_takes_too_long_is_told_in_words_and_the_next_one_is_made(monkeypatch, caplog):
    # given an API that does not answer
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.05)
    made: list[str] = []

    async def silent() -> None:
        await asyncio.Event().wait()

    async def good() -> None:
        made.append("good")

    async def make() -> None:
        reporter = Reporter()
        reporter.soon("silent", silent())
        reporter.soon("good", good())
        await reporter.finish()

    # when
    asyncio.run(make())
    # then
    assert made == ["good"]
    assert [each.getMessage() for each in caplog.records if each.name == "reports"] == [
        "report silent could not be made: no answer"
    ]


def test_reports_that_never_have_their_turn_are_let_go_at_the_end(monkeypatch):
    # given one that does not end, and one behind it
    monkeypatch.setattr(reporting, "LAST_PATIENCE_SECONDS", 0.05)

    async def silent() -> None:
        await asyncio.Event().wait()

    async def make() -> None:
        reporter = Reporter()
        reporter.soon("first", silent())
        reporter.soon("second", silent())
        await reporter.finish()

    # when, then nothing is left behind: a coroutine that is forgotten would be a warning, and fail this test
    asyncio.run(make())
