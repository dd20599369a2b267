"""A bucket to measure in: of a real S3 server on the loopback, which ends with the row."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore

from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from rows.setting import Setting

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.s3.server import Server, serve

AT_ONCE = 64


@dataclass(frozen=True)
class Bucket:
    """Where a row measures.

    Args:
        server: the server.
        access: ours to it.
    """

    server: Server
    access: S3Access

    def store(self, name: str = "") -> S3Store:
        """A store at a prefix; at one of its own without a name."""
        return S3Store(S3Place(self.server.bucket, name or f"runs/{secrets.token_hex(4)}"), self.access)

    @property
    def bare(self) -> Any:
        """The client without anything of ours."""
        return self.access.bucket(self.server.bucket, self.access.credentials())

    def fill(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Create many objects, side by side."""
        client = self.bare

        async def put_all() -> None:
            limit = asyncio.Semaphore(AT_ONCE)

            async def put(key: str, content: bytes) -> None:
                async with limit:
                    await obstore.put_async(client, key, content, use_multipart=False)

            for start in range(0, len(objects), 10_000):
                await asyncio.gather(*(put(*each) for each in objects[start : start + 10_000]))

        asyncio.run(put_all())


@contextmanager
def a_bucket(setting: Setting, folder: Path | None = None) -> Iterator[Bucket]:
    """Run a server while the block runs, in the row's folder or in another one."""
    setting.tell("  starting an S3 server")
    with serve("seaweed", (folder or setting.folder) / "server") as server:
        credentials = Credentials(server.key, server.secret)
        patience = S3Patience(timedelta(seconds=60), timedelta(seconds=60))
        yield Bucket(server, S3Access(server.endpoint, "", lambda again: credentials, patience=patience))
