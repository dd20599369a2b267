"""What the suites over every store share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.s3 import S3Store
from support.s3.access import new_url, store_at
from support.s3.server import Server


@dataclass
class Workbench:
    """A fresh store, and the hands of a program that writes and deletes files in it."""

    store: PosixStore | MemoryStore | S3Store
    client: Any = None

    def write(self, path: str, content: bytes = b"weights") -> None:
        if isinstance(self.store, MemoryStore):
            self.store.write(path, content)
            return
        if isinstance(self.store, S3Store):
            place = self.store.place
            self.client.put_object(Bucket=place.bucket, Key=place.key(path), Body=content)
            return
        place = Path(self.store.location, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def delete(self, path: str) -> None:
        if isinstance(self.store, MemoryStore):
            self.store.delete(path)
        elif isinstance(self.store, S3Store):
            place = self.store.place
            keys = [place.key(path)]
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=f"{keys[0]}/")
            keys += [entry["Key"] for page in pages for entry in page.get("Contents", [])]
            for key in keys:
                self.client.delete_object(Bucket=place.bucket, Key=key)
        elif (place := Path(self.store.location, path)).is_dir():
            for entry in sorted(place.rglob("*"), reverse=True):
                entry.rmdir() if entry.is_dir() else entry.unlink()
            place.rmdir()
        else:
            place.unlink()

    def read(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        return self.store.ledger(folder).read(name)


@dataclass
class Execution:
    """One execution of a lineage, driven by a test."""

    root: LineageRoot
    bench: Workbench
    epoch: Epoch
    attempt: str
    identity: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return f"exec/{self.attempt}"

    def save(self, name: str, step: int, content: bytes = b"weights", **options):
        self.bench.write(f"{self.folder}/{name}/model.bin", content)
        return self.publish(f"{self.folder}/{name}", step, **options)

    def publish(self, path: str, step: int, **options):
        return self.root.publish(self.epoch, self.attempt, path, step, identity=self.identity, **options)


def new_bench(kind: str, request, folder: Path) -> Workbench:
    """A fresh store of a kind."""
    if kind == "posix":
        return Workbench(PosixStore(folder / "root"))
    if kind == "memory":
        return Workbench(MemoryStore())
    server: Server = request.getfixturevalue("s3_server")
    return Workbench(store_at(server, new_url(server)), server.client())


@pytest.fixture(params=["posix", "memory", "s3"])
def bench(request, tmp_path) -> Workbench:
    bench = new_bench(request.param, request, tmp_path)
    bench.store.probe()
    return bench


@pytest.fixture
def root(bench) -> LineageRoot:
    root = LineageRoot(bench.store)
    root.prepare("record-1", "digits")
    return root


@pytest.fixture
def begin(root, bench):
    """Claim and start an execution."""

    def start(generation: int = 0, submission: int = 1, restart: int = 0, **identity: str) -> Execution:
        execution = Execution(
            root, bench, Epoch(generation, submission, restart), attempt_of(new_token(), restart), identity
        )
        root.claim(execution.epoch, execution.attempt, "record-1", "run-1")
        root.start(execution.epoch, execution.attempt, {"host": "node1"}, identity)
        return execution

    return start
