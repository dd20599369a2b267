"""A real S3 server, a place in its bucket for each test, and a proxy in front of it that makes faults."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from obstore.store import S3Store

from prefect_dispatch.stores import s3_mover
from support.s3.direct import Direct
from support.s3.place import TOKEN, Place, Places
from support.s3.proxy import FaultProxy
from support.s3.runs import Runs
from support.s3.server import Server
from support.s3.signature import sign_anew
from support.s3.strikes import Sweep


@pytest.fixture(scope="session")
def places(s3_server: Server) -> Iterator[Places]:
    found = Places(s3_server)
    yield found
    found.close()


@pytest.fixture
def direct(places: Places) -> Direct:
    """A place of the test's own, reached past the proxy."""
    return places.direct()


@pytest.fixture
def proxy(places: Places) -> Iterator[FaultProxy]:
    found = places.new_proxy()
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
def place(places: Places) -> Iterator[Place]:
    found = places.new()
    yield found
    found.close()


@pytest.fixture
def sweep(places: Places, s3_server: Server) -> Sweep[Place]:
    return Sweep(places.new, (s3_server.secret, TOKEN), lambda place: (place.proxy.endpoint, place.direct.bucket))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def runs(tmp_path: Path, compiled: Path, places: Places) -> Iterator[Runs]:
    """Wrappers around a training, whose root is behind a proxy."""
    found = Runs.at(places.new(), tmp_path, compiled)
    yield found
    found.close()


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of parts that makes a file of ten megabytes a large one: the least that S3 takes."""
    size = 5 * 2**20
    monkeypatch.setattr(s3_mover, "PART", size)
    monkeypatch.setattr(s3_mover, "_LARGE", 2 * size)
    return size


@pytest.fixture
def denying(runs: Runs, s3_server: Server) -> Runs:
    """Runs without keys, behind a proxy that takes any: the server knows none but its own."""
    runs.proxy.authority = lambda request, body: sign_anew(request, body, s3_server.key, s3_server.secret)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del runs.environment[name]
    runs.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(runs.folder / "no-credentials")
    runs.environment["AWS_CONFIG_FILE"] = str(runs.folder / "no-config")
    return runs
