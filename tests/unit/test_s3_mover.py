"""The mover's wait for its own work: what has ended is taken as it ended, and what was given up ends first."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

from prefect_dispatch.errors import StoreError
from prefect_dispatch.stores import s3_mover
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_mover import S3Mover
from prefect_dispatch.stores.s3_progress import Progress
from prefect_dispatch.stores.s3_requests import S3Requests
from prefect_dispatch.stores.transfer import Direction, Transfer, tell_nobody


@pytest.fixture
def mover() -> S3Mover:
    access = S3Access("http://127.0.0.1:1", "", lambda again: Credentials("key", "secret"))
    return S3Mover(S3Requests(S3Bucket("bucket", access)))


@pytest.fixture
def progress() -> Progress:
    return Progress(Transfer(Direction.UPLOAD, "exec/a/save", 0, 1), tell_nobody)


class EndsAtTheTick(concurrent.futures.Future[Any]):
    """A future that ends in the moment in which somebody has waited long enough for it."""

    def result(self, timeout: float | None = None) -> Any:
        ended = super().result()
        if timeout is not None:
            raise concurrent.futures.TimeoutError
        return ended


def test_a_transfer_that_ends_in_the_moment_of_a_tick_has_ended(
    mover: S3Mover, progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    real = asyncio.run_coroutine_threadsafe

    def run(work: Any, loop: Any) -> Any:
        future = EndsAtTheTick()
        real(work, loop).add_done_callback(lambda done: future.set_result(done.result()))
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", run)

    async def move() -> str:
        return "moved"

    # when / then
    assert mover._run([(1, move)], progress) == ["moved"]


def test_a_transfer_that_is_given_up_has_ended_when_that_is_told(
    mover: S3Mover, progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a transfer that stands still, and takes a while to end
    monkeypatch.setattr(mover, "_stall_seconds", 0.0)
    ended: list[bool] = []

    async def move() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.5)
            ended.append(True)

    # when it is given up
    with pytest.raises(StoreError, match="stands still"):
        mover._run([(1, move)], progress)
    # then nothing of it is under way any more
    assert ended == [True]


def test_a_transfer_that_does_not_end_is_not_waited_for_without_bound(
    mover: S3Mover, progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "_stall_seconds", 0.0)
    monkeypatch.setattr(s3_mover, "_END_SECONDS", 0.1)
    release = asyncio.Event()

    async def move() -> None:
        try:
            await release.wait()
        finally:
            await release.wait()

    with pytest.raises(StoreError, match="stands still"):
        mover._run([(1, move)], progress)
    loop = mover._bucket.access.filesystem(Credentials("key", "secret")).loop
    loop.call_soon_threadsafe(release.set)
