"""Credentials that are renewed while many requests are under way: what was denied is made again with the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.stores import s3_access
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.stores.s3_place import S3Place
from support.s3 import faults
from support.s3.messages import Operation, Request
from support.s3.place import CALM
from support.s3.proxy import Exchange, FaultProxy
from support.s3.signature import sign_anew

SAVE = "exec/k3v7q2m5x4c6b7a2-0/save"


@dataclass
class Source:
    """Gives the next credentials each time that those before were denied, and says who asked.

    Attributes:
        number: of those that it gives.
        threads: the names of the threads that asked.
    """

    number: int
    threads: list[str]

    def __call__(self, again: bool) -> Credentials:
        self.threads.append(threading.current_thread().name)
        self.number += again
        return Credentials(f"key-{self.number}", "secret")


@dataclass
class Scene:
    """A store whose credentials are renewed, on a server that takes all that its proxy does not deny."""

    store: S3Store
    source: Source
    proxy: FaultProxy


@pytest.fixture
def scene(place: Any) -> Scene:
    server = place.places.server
    place.proxy.authority = lambda request, body: sign_anew(request, body, server.key, server.secret)
    source = Source(1, [])
    access = S3Access(place.proxy.endpoint, "", source, patience=CALM)
    return Scene(S3Store(S3Place.parse(place.direct.url), access), source, place.proxy)


def signed_with(number: int) -> Callable[[Request], bool]:
    return lambda request: request.access_key == f"key-{number}"


def deny_together(count: int) -> Callable[[Exchange], None]:
    """Denies so many requests when all of them are there."""
    together = threading.Barrier(count)

    def deny(exchange: Exchange) -> None:
        exchange.body()
        with suppress(threading.BrokenBarrierError):
            together.wait(20)
        faults.EXPIRED(exchange)

    return deny


def test_looks_that_are_denied_together_are_all_made_again(scene: Scene, place: Any) -> None:
    # given a save of as many files as are looked at side by side
    for number in range(16):
        place.direct.put(f"{SAVE}/{number:02d}", b"weights")
    files = place.honest.files(SAVE)
    # when the credentials of all of these looks are denied together
    rule = scene.proxy.arm(deny_together(16), Operation.HEAD, where=signed_with(1), times=None)
    # (an answer to HEAD is 400 and says nothing else; who reads is told why)
    scene.proxy.arm(faults.EXPIRED, Operation.GET, where=signed_with(1), times=None)
    # then each is made again with those that the first one found
    assert scene.store.difference(SAVE, files) is None
    assert len(rule.struck) == 16 and scene.source.number == 2


def test_uploads_that_are_denied_together_are_all_made_again(scene: Scene, place: Any, tmp_path: Path) -> None:
    # given a save of as many small files as are sent side by side
    managed = ManagedStore(scene.store, str(tmp_path / "own"))
    managed.make_folder(SAVE)
    for number in range(8):
        Path(managed.local(SAVE), f"{number}").write_bytes(b"weights")
    files = managed.files(SAVE)
    rule = scene.proxy.arm(deny_together(8), Operation.PUT, where=signed_with(1), times=None)
    # when / then
    managed.sync(SAVE, files)
    assert len(rule.struck) == 8 and scene.source.number == 2
    assert len(place.direct.keys(SAVE)) == 8


def test_an_upload_outlives_its_credentials_more_than_once_and_sends_no_part_again_that_came(
    scene: Scene, place: Any, tmp_path: Path, part: int
) -> None:
    # given a large file, and credentials that end with its first part, and again with its completion
    managed = ManagedStore(scene.store, str(tmp_path / "own"))
    managed.make_folder(SAVE)
    content = os.urandom(2 * part + 5)
    Path(managed.local(SAVE), "model").write_bytes(content)
    scene.proxy.arm(faults.EXPIRED, Operation.PART, where=lambda it: it.query["partNumber"] == "1")
    rule = scene.proxy.arm(faults.EXPIRED, Operation.PART, where=lambda it: it.query["partNumber"] == "3")
    # when it is sent
    managed.sync(SAVE, managed.files(SAVE))
    # then it is there, from one upload, whose parts came once each and twice where they were denied
    assert rule.struck and place.direct.get(f"{SAVE}/model") == content
    assert scene.proxy.count(Operation.BEGIN) == 1
    assert scene.proxy.count(Operation.PART) == 5


def test_a_slow_source_of_credentials_stops_no_transfer(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given credentials whose source is looked at before each request
    monkeypatch.setattr(s3_access, "_FRESH_SECONDS", -1.0)
    managed = ManagedStore(scene.store, str(tmp_path / "own"))
    managed.make_folder(SAVE)
    for number in range(4):
        Path(managed.local(SAVE), f"{number}").write_bytes(b"weights")
    # when a save is sent
    managed.sync(SAVE, managed.files(SAVE))
    # then that was never done in the thread in which all transfers are
    assert len(scene.source.threads) > 8
    assert "fsspecIO" not in scene.source.threads
