"""A real S3 server, a place in its bucket for each test, and a proxy in front of it that makes faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from obstore.store import S3Store

from prefect_dispatch.stores.lineage_root import LineageRoot
from support.s3.direct import Direct
from support.s3.place import CALM, TOKEN, Place, store_at
from support.s3.proxy import FaultProxy
from support.s3.runs import LINEAGE, Runs
from support.s3.server import Server
from support.s3.strikes import Sweep

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def client(s3_server: Server) -> Any:
    return s3_server.client()


@pytest.fixture
def direct(client: Any, s3_server: Server) -> Direct:
    """A place of the test's own, reached past the proxy."""
    return Direct(client, s3_server.bucket, f"faults-{next(_numbers)}")


@pytest.fixture
def proxy(s3_server: Server) -> Iterator[FaultProxy]:
    place = urlsplit(s3_server.endpoint)
    found = FaultProxy(str(place.hostname), int(place.port or 0))
    yield found
    found.close()


@pytest.fixture
def bare(proxy: FaultProxy, s3_server: Server, direct: Direct) -> S3Store:
    """A client that tries once and is none of ours."""
    return S3Store(
        direct.bucket,
        prefix=direct.prefix,
        endpoint=proxy.endpoint,
        access_key_id=s3_server.key,
        secret_access_key=s3_server.secret,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": timedelta(seconds=2)},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=2)},
    )


@pytest.fixture
def reach(s3_server: Server, client: Any) -> Callable[[], Place]:
    """Makes places behind proxies of their own, whose clients are not patient."""
    return lambda: Place.made(s3_server, client, f"faults-{next(_numbers)}")


@pytest.fixture
def sweep(reach: Callable[[], Place], s3_server: Server) -> Sweep[Place]:
    return Sweep(reach, (s3_server.secret, TOKEN), lambda place: (place.proxy.endpoint, place.direct.bucket))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def runs(tmp_path: Path, compiled: Path, proxy: FaultProxy, direct: Direct, s3_server: Server) -> Iterator[Runs]:
    """Wrappers around a training, whose root is behind the proxy."""
    found = Runs(
        tmp_path,
        direct,
        LineageRoot(store_at(f"{direct.url}/{LINEAGE}", s3_server.endpoint, s3_server, CALM)),
        s3_server.environment(AWS_ENDPOINT_URL=proxy.endpoint, DISPATCH_S3_TIMEOUT="2s", DISPATCH_S3_RETRY="3s"),
        compiled,
    )
    yield found
    found.close()
