"""Servers that are not as they should be, each a real one: told apart, bounded in time, and never obeyed."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

import support
from prefect_dispatch.errors import Absent, DispatchError, StoreError, StoreUnreachable
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_http import PlainRequests
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from support.s3.access import new_url, store_at
from support.s3.server import Server, serve
from support.waiting import until

BRIEF = S3Patience(timedelta(seconds=1), timedelta(seconds=1))
TOKEN = "token-of-the-tests"


def store_of(endpoint: str, bucket: str = "bucket") -> S3Store:
    access = S3Access(endpoint, "", lambda again: Credentials("key", "secret-key", TOKEN), patience=BRIEF)
    return S3Store(S3Place(bucket, "runs"), access)


@contextmanager
def answering(answer: bytes | None, host: str = "127.0.0.1") -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives everybody one answer, or none; and all that it was sent."""
    received: list[bytes] = []
    listener = socket.create_server((host, 0))
    held: list[socket.socket] = []

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            received.append(connection.recv(65536))
            if answer is not None:
                connection.sendall(answer)
                connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{listener.getsockname()[1]}", received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        for connection in held:
            connection.close()


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """A server that gives one client a head, and then a byte every now and then."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(head)
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(5)


SERVING = """
import pathlib, sys, time
from support.s3.server import serve
with serve(sys.argv[1], pathlib.Path(sys.argv[2])) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["seaweed", "nanio"])
def test_a_server_of_the_tests_ends_with_a_test_run_that_is_killed(kind: str, tmp_path: Path) -> None:
    # given a test run that has a server
    environment = {**os.environ, "PYTHONPATH": str(Path(support.__file__).parents[1])}
    program = [sys.executable, "-c", SERVING, kind, str(tmp_path / "server")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        # when the run is killed
        run.kill()
    # then its server is gone too
    until(lambda: not is_running(server), "the server is gone")


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie that somebody has yet to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_server_that_ignores_the_condition_is_refused_at_first_use(tmp_path: Path) -> None:
    # given one that overwrites whatever it is told not to
    with serve("nanio", tmp_path / "nanio") as server:
        store = store_at(server, new_url(server))
        # when / then
        with pytest.raises(StoreUnreachable, match="If-None-Match") as refusal:
            store.probe()
        assert server.endpoint in str(refusal.value)
        assert store.ledger("tmp").names() == []


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ACTS = {
    "read": lambda store: store.ledger("pub").read("x"),
    "names": lambda store: store.ledger("pub").names(),
    "names behind one": lambda store: store.ledger("pub").names("a"),
    "create": lambda store: store.ledger("pub").create("x"),
    "remove": lambda store: store.ledger("pub").remove("x"),
    "children": lambda store: store.folders(""),
}


def moved_to(elsewhere: str) -> bytes:
    head = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere}/x?secret=y\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return head.encode()


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1"], ids=["another host", "another port"])
@pytest.mark.parametrize("ask", ACTS)
def test_a_server_that_sends_everybody_elsewhere_is_refused_before_it_gets_a_token(ask: str, host: str) -> None:
    # given a server that sends everybody elsewhere
    with answering(OK, host) as (elsewhere, stolen), answering(moved_to(elsewhere)) as (endpoint, received):
        # when it is asked
        with pytest.raises(StoreUnreachable) as failure:
            ACTS[ask](store_of(endpoint))
        # then neither has got a token or a signature, and what is told names both and no more
        assert stolen == [] and len(received) == 1
        assert TOKEN.encode() not in received[0] and b"uthorization" not in received[0]
        text = str(failure.value)
        assert endpoint in text and elsewhere in text
        assert TOKEN not in text and "secret" not in text


@pytest.mark.parametrize("ask", ACTS)
def test_a_later_redirect_to_another_host_is_not_followed(ask: str) -> None:
    # given a server that begins to send everybody to another host when it is known already
    with answering(OK, "127.0.0.2") as (elsewhere, stolen), answering(moved_to(elsewhere)) as (endpoint, received):
        store = store_of(endpoint)
        store.access._stays = True
        # when it is asked
        with pytest.raises(StoreError) as failure:
            ACTS[ask](store)
        # then the other one gets nothing, and what is told names the endpoint and no secret
        assert stolen == [] and len(received) >= 1
        assert not isinstance(failure.value, Absent)
        assert endpoint in str(failure.value)
        assert TOKEN not in str(failure.value) and "secret-key" not in str(failure.value)


def upload(store: ManagedStore, size: int) -> None:
    save = Path(store.workplace, "exec", "try-0", "weights")
    save.parent.mkdir(parents=True)
    save.write_bytes(b"x" * size)
    store.sync("exec/try-0/weights", store.files("exec/try-0/weights"))


def restore(store: ManagedStore, size: int) -> None:
    store.copy("exec/try-0/weights", "meta/try-1/resume/weights", (SavedFile("", size, 0, None, None, "0" * 64),))


@pytest.mark.parametrize(
    ("move", "size", "status"),
    [(upload, 7, 301), (upload, 7, 307), (upload, 33 * 1024 * 1024, 307), (restore, 7, 307)],
    ids=["upload, moved for good", "upload", "upload in parts", "restore"],
)
def test_a_save_goes_nowhere_but_to_the_endpoint(
    tmp_path: Path, move: Callable[[ManagedStore, int], None], size: int, status: int
) -> None:
    # given a server that begins to send everybody to another host, which would take anything
    taking = b'HTTP/1.1 200 OK\r\nETag: "%032d"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' % 0
    with answering(taking, "127.0.0.2") as (elsewhere, stolen):
        moved = moved_to(elsewhere).replace(b"307", str(status).encode())
        with answering(moved) as (endpoint, received):
            remote = store_of(endpoint)
            remote.access._stays = True
            # when a save is moved
            with pytest.raises(StoreError) as failure:
                move(ManagedStore(remote, str(tmp_path / "workplace")), size)
    # then the other host gets nothing, and nobody is told that it is done
    assert stolen == [] and len(received) >= 1
    assert TOKEN not in str(failure.value) and "secret-key" not in str(failure.value)


def test_a_server_that_sends_everybody_elsewhere_is_refused_behind_a_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a proxy that the environment names, through which the answer of such a server comes
    with answering(OK) as (elsewhere, stolen), answering(moved_to(elsewhere)) as (proxy, received):
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        # when the server is asked
        with pytest.raises(StoreUnreachable, match="sends its clients on"):
            store_of("http://store.invalid").ledger("pub").read("x")
        # then nobody has got a token
        assert stolen == [] and len(received) == 1
        assert TOKEN.encode() not in received[0]


def test_a_server_that_redirects_within_itself_is_asked() -> None:
    # given a server whose answer to whoever is not known leads to a page of its own
    answer = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with answering(answer) as (endpoint, _):
        store_of(endpoint).access.require_no_redirect("bucket")


@pytest.mark.parametrize("ask", ACTS)
def test_missing_credentials_are_told_whatever_is_asked(ask: str) -> None:
    def nothing(again: bool) -> Credentials:
        raise StoreUnreachable("there are no credentials for S3")

    store = S3Store(S3Place("bucket", "runs"), S3Access("http://127.0.0.1:1", "", nothing, patience=BRIEF))
    with pytest.raises(StoreUnreachable, match="there are no credentials"):
        ACTS[ask](store)
    with pytest.raises(StoreUnreachable, match="there are no credentials"):
        list(store.requests.chunks("key", 10))


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with answering(None) as (endpoint, _):
        began = time.monotonic()
        with pytest.raises(StoreError, match="did not answer in time"):
            store_of(endpoint).ledger("pub").create("x")
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("status", [b"200 OK", b"500 Internal Server Error"])
def test_an_answer_that_comes_a_byte_at_a_time_is_given_up_in_time(status: bytes) -> None:
    # given a server whose body goes on and on, each byte soon after the last
    with dripping(b"HTTP/1.1 %s\r\nContent-Length: 1000\r\n\r\n" % status) as endpoint:
        began = time.monotonic()
        # when / then
        with pytest.raises(TimeoutError):
            PlainRequests(1.0).ask("GET", endpoint)
        assert time.monotonic() - began < 10


def test_authorities_are_read_once_for_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    read: list[object] = []
    real = ssl.create_default_context

    def create(**options: object) -> ssl.SSLContext:
        read.append(options)
        return real(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl, "create_default_context", create)
    requests = PlainRequests(5.0)
    # when
    for _ in range(3):
        with pytest.raises(OSError, match="refused"):
            requests.ask("GET", "https://127.0.0.1:1")
    # then
    assert len(read) == 1


def test_nobody_there_is_told_with_the_endpoint() -> None:
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:1: nobody listens there"):
        store_of("http://127.0.0.1:1").ledger("pub").read("x")


def test_an_https_url_to_a_server_that_speaks_http_is_told_so(s3_server: Server) -> None:
    endpoint = s3_server.endpoint.replace("http:", "https:")
    for ask in (lambda s: s.probe(), lambda s: s.ledger("a").read("x"), lambda s: s.ledger("a").names()):
        with pytest.raises(DispatchError, match=r"does not speak TLS; write http://") as failure:
            ask(store_of(endpoint))
        assert endpoint in str(failure.value)


def test_a_proxy_that_is_not_there_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://somebody:hidden@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(StoreError, match=r"nobody listens there .*proxy 127\.0\.0\.1:1") as failure:
        store_of("http://s3.example:9000").ledger("pub").read("x")
    assert "s3.example:9000" in str(failure.value) and "hidden" not in str(failure.value)


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (403, "QuotaExceeded", StoreError, "no room for this"),
        (507, "XMinioStorageFull", StoreError, "no room for this"),
        (501, "NotImplemented", StoreError, "check endpoint"),
        (403, "AccessDenied", StoreUnreachable, "s3:ListBucket"),
        (403, "InvalidAccessKeyId", StoreUnreachable, "check the key"),
    ],
)
def test_a_refusal_names_its_way_out(status: int, code: str, kind: type[DispatchError], told: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    answer = b"HTTP/1.1 %d No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
    with answering(answer) as (endpoint, _):
        for ask in (lambda s: s.ledger("a").create("x"), lambda s: s.ledger("a").names()):
            with pytest.raises(kind, match=told) as failure:
                ask(store_of(endpoint))
            assert endpoint in str(failure.value) and code in str(failure.value)


def test_a_check_of_a_root_that_cannot_be_asked_finds_nothing_and_says_so() -> None:
    with pytest.raises(StoreError, match="nobody listens there; start it"):
        LineageRoot(store_of("http://127.0.0.1:1")).check()


def test_a_404_that_does_not_say_what_is_missing_proves_nothing() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngone"
    with answering(answer) as (endpoint, _), pytest.raises(StoreError) as failure:
        store_of(endpoint).ledger("pub").read("x")
    assert not isinstance(failure.value, Absent)


def test_a_bucket_that_is_not_there_is_named_with_its_endpoint() -> None:
    body = b"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>no</Message></Error>"
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    with answering(answer) as (endpoint, _):
        for ask in (lambda s: s.probe(), lambda s: s.ledger("a").read("x"), lambda s: s.ledger("a").names()):
            with pytest.raises(StoreUnreachable, match="'saves'") as failure:
                ask(store_of(endpoint, "saves"))
            assert endpoint in str(failure.value)


def test_what_a_server_says_of_the_request_is_not_shown() -> None:
    body = (
        "<Error><Code>SignatureDoesNotMatch</Code><Message>m</Message>"
        f"<CanonicalRequest>x-amz-security-token:{TOKEN}</CanonicalRequest></Error>"
    ).encode()
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    with answering(answer) as (endpoint, _), pytest.raises(StoreUnreachable, match="credentials") as failure:
        store_of(endpoint).ledger("pub").read("x")
    assert "SignatureDoesNotMatch" in str(failure.value) and TOKEN not in str(failure.value)
    assert failure.value.__cause__ is None


def test_wrong_credentials_are_told_apart_from_what_is_absent(s3_server: Server) -> None:
    access = S3Access(s3_server.endpoint, "", lambda again: Credentials("nobody", "nothing"), patience=BRIEF)
    store = S3Store(S3Place(s3_server.bucket, "runs"), access)
    for ask in (lambda: store.ledger("pub").read("x"), store.ledger("pub").names, store.probe):
        with pytest.raises(StoreUnreachable, match="credentials"):
            ask()


def test_credentials_that_are_renewed_after_a_denial_are_used_at_once(s3_server: Server) -> None:
    # given credentials that have expired, and a source that has others by now
    given = [Credentials("expired", "nothing"), Credentials(s3_server.key, s3_server.secret)]
    access = S3Access(s3_server.endpoint, "", lambda again: given[again], patience=BRIEF)
    place = S3Place.parse(new_url(s3_server))
    # when / then
    S3Store(place, access).ledger("pub").create("x")
    assert store_at(s3_server, place.url).ledger("pub").names() == ["x"]
