"""A root on S3 as it is reached: by our store through a proxy, by our store past it, and by another client."""

from __future__ import annotations

import contextlib
import itertools
import queue
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from support.s3.direct import Direct
from support.s3.proxy import FaultProxy
from support.s3.server import Server

TOKEN = "tests-session-token-of-nobody"
HASTE = S3Patience(timedelta(seconds=2), timedelta(seconds=4))
"""A patience that no test has to wait long for; a slow machine may come to its end without any fault."""
CALM = S3Patience()


@dataclass
class Place:
    """A root of a test's own.

    Attributes:
        places: where it came from.
        proxy: stands before the server, for ``store`` alone.
        access: by the proxy.
        direct: the root's place, for a client that is none of ours.
        store: our store, through the proxy.
        honest: our store, past the proxy.
    """

    places: Places
    proxy: FaultProxy
    access: S3Access
    direct: Direct
    store: S3Store
    honest: S3Store

    def elsewhere(self, url: str) -> S3Store:
        """Our store at another URL, through the proxy."""
        return S3Store(S3Place.parse(url), self.access)

    def close(self) -> None:
        self.places.take_back(self)


class Places:
    """Makes places on one server. Clients take long to make, so a proxy and its client serve one place after another.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.calm = access_by(server.endpoint, server, CALM)
        self._numbers = itertools.count(1)
        self._idle: dict[S3Patience, queue.SimpleQueue[tuple[FaultProxy, S3Access]]] = {
            patience: queue.SimpleQueue() for patience in (HASTE, CALM)
        }

    def direct(self) -> Direct:
        """A place that nobody else has."""
        return Direct(self.server.client(), self.server.bucket, f"faults-{next(self._numbers)}")

    def new_proxy(self) -> FaultProxy:
        at = urlsplit(self.server.endpoint)
        return FaultProxy(str(at.hostname), int(at.port or 0))

    def honest(self, url: str) -> S3Store:
        """Our store at a URL, past every proxy."""
        return S3Store(S3Place.parse(url), self.calm)

    def new(self, patience: S3Patience = HASTE) -> Place:
        try:
            proxy, access = self._idle[patience].get_nowait()
        except queue.Empty:
            proxy = self.new_proxy()
            access = access_by(proxy.endpoint, self.server, patience)
            # Its first request, which is made once, belongs to no act.
            access.require_no_redirect(self.server.bucket)
            proxy.seen.clear()
        direct = self.direct()
        store = S3Store(S3Place.parse(direct.url), access)
        return Place(self, proxy, access, direct, store, self.honest(direct.url))

    def take_back(self, place: Place) -> None:
        at = urlsplit(self.server.endpoint)
        place.proxy.turn_to(str(at.hostname), int(at.port or 0))
        place.proxy.authority = None
        place.proxy.disarm()
        place.proxy.seen.clear()
        self._idle[place.access.patience].put((place.proxy, place.access))

    def close(self) -> None:
        for idle in self._idle.values():
            with contextlib.suppress(queue.Empty):
                while True:
                    idle.get_nowait()[0].close()


def access_by(endpoint: str, server: Server, patience: S3Patience) -> S3Access:
    """Access to a server by another endpoint."""
    credentials = Credentials(server.key, server.secret)
    return S3Access(endpoint, "", lambda again: credentials, patience=patience)
