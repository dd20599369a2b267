"""A root on S3 as it is reached: by our store through a proxy, by our store past it, and by another client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import Credentials, S3Access, S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from support.s3.direct import Direct
from support.s3.proxy import FaultProxy
from support.s3.server import Server

TOKEN = "tests-session-token-of-nobody"
HASTE = S3Patience(timedelta(seconds=1), timedelta(seconds=2))
"""A patience that no test has to wait long for."""
CALM = S3Patience()


@dataclass
class Place:
    """A root of a test's own.

    Attributes:
        proxy: stands before the server, for ``store`` alone.
        direct: the root's place, for a client that is none of ours.
        store: our store, through the proxy.
        honest: our store, past the proxy.
    """

    server: Server

    proxy: FaultProxy
    direct: Direct
    store: S3Store
    honest: S3Store

    @classmethod
    def made(cls, server: Server, client: Any, prefix: str) -> Place:
        direct = Direct(client, server.bucket, prefix)
        at = urlsplit(server.endpoint)
        proxy = FaultProxy(str(at.hostname), int(at.port or 0))
        return cls(
            server,
            proxy,
            direct,
            store_at(direct.url, proxy.endpoint, server, HASTE),
            store_at(direct.url, server.endpoint, server, CALM),
        )

    def elsewhere(self, url: str) -> S3Store:
        """Our store at another URL, through the proxy."""
        return store_at(url, self.proxy.endpoint, self.server, HASTE)


def store_at(url: str, endpoint: str, server: Server, patience: S3Patience) -> S3Store:
    """Our store at a URL, reached by this endpoint."""
    credentials = Credentials(server.key, server.secret)
    return S3Store(S3Place.parse(url), S3Access(endpoint, "", lambda *renewing: credentials, patience=patience))
