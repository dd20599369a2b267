"""A proxy in front of an S3 server, which a test tells what is to go wrong."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from support.s3.messages import Gone, Operation, Request, Response, Wire
from support.waiting import until

Fault = Callable[["Exchange"], None]
"""What becomes of one request instead of being served. It may leave it unanswered: then its connection is closed."""
_TICK = 0.02


@dataclass
class Rule:
    """Which requests a fault strikes.

    Args:
        fault: what happens to them.
        operations: what they ask for; empty for anything.
        key: a regular expression that is found in their key.
        where: what else must hold of them.
        skip: how many of them are served first.
        times: how many are struck; None for all that follow.

    Attributes:
        struck: those that were struck.
        held: those that a fault holds at the moment.
    """

    fault: Fault
    operations: tuple[Operation, ...] = ()
    key: str = ""
    where: Callable[[Request], bool] = lambda request: True
    skip: int = 0
    times: int | None = 1
    struck: list[Request] = field(default_factory=list)
    held: list[Request] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Strike no more, and let go of what is held."""
        self.ended.set()

    def takes(self, request: Request) -> bool:
        """Whether this request is struck; called once for each, by one thread at a time."""
        if self.ended.is_set() or (self.times is not None and len(self.struck) >= self.times):
            return False
        if self.operations and request.operation not in self.operations:
            return False
        if not re.search(self.key, request.key) or not self.where(request):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.struck.append(request)
        return True

    def wait_struck(self, times: int = 1) -> None:
        until(lambda: len(self.struck) >= times, f"{times} requests are struck by {self.fault}")

    def wait_held(self, times: int = 1) -> None:
        until(lambda: len(self.held) >= times, f"{times} requests are held by {self.fault}")


class Exchange:
    """One request on its way through the proxy.

    Args:
        request: its head.
        client: where it came from.
        connect: connects to the server.
        rule: the rule that struck it; None where none did.
        authority: signs it anew before the server gets it.
    """

    def __init__(
        self,
        request: Request,
        client: Wire,
        connect: Callable[[], socket.socket],
        rule: Rule | None = None,
        authority: Callable[[Request, bytes], Request] | None = None,
    ) -> None:
        self.request = request
        self.rule = rule
        self.keeps_connection = False
        self._client = client
        self._connect = connect
        self._authority = authority
        self._body: bytes | None = None

    def body(self) -> bytes:
        """The request's whole body."""
        if self._body is None:
            self.invite_body()
            self._body = b"".join(self._client.body(self.request.headers))
        return self._body

    def invite_body(self) -> None:
        """Tell a client that waits for it to send the body."""
        if (self.request.header("expect") or "").lower() == "100-continue":
            self._client.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def forward(self, request: Request | None = None, body: bytes | None = None) -> Response:
        """Have the server serve the request, or another one or body in its place, and return what it answers."""
        body = self.body() if body is None else body
        request = request or self.request
        if self._authority is not None:
            request = self._authority(request, body)
        with contextlib.closing(self._connect()) as server:
            server.sendall(self.as_sent(request, len(body)) + body)
            return Wire(server).read_response(self.request.method)

    def forward_part_of_body(self, count: int) -> None:
        """Send the server the head and so many bytes of the body, then close the connection to it."""
        body = self.body()
        with contextlib.closing(self._connect()) as server:
            server.sendall(self.as_sent(self.request, len(body)) + body[:count])

    @staticmethod
    def as_sent(request: Request, length: int) -> bytes:
        """The head of a request as the server gets it: its body comes in one piece, on a connection of its own."""
        plain = request.without("expect", "connection", "transfer-encoding", "content-length")
        framing = (("Content-Length", str(length)),) if length or request.method in ("PUT", "POST") else ()
        return Request(plain.method, plain.target, (*plain.headers, *framing, ("Connection", "close"))).head()

    def answer(self, response: Response) -> None:
        """Send the client a whole response; the connection stays."""
        self.body()
        self.send(response.head() + response.body)
        self.keeps_connection = response.length is not None

    def send(self, data: bytes) -> None:
        """Send the client anything."""
        try:
            self._client.socket.sendall(data)
        except OSError as error:
            raise Gone(str(error)) from None

    def hold(self) -> None:
        """Do nothing until the client closes its connection or the rule ends."""
        assert self.rule is not None
        self.rule.held.append(self.request)
        try:
            while not self.rule.ended.wait(_TICK) and not self.client_is_gone():
                pass
        finally:
            self.rule.held.remove(self.request)

    def client_is_gone(self) -> bool:
        """Whether the client has closed its connection."""
        try:
            readable, _, _ = select.select([self._client.socket], [], [], 0)
            return bool(readable) and not self._client.socket.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True


class FaultProxy:
    """Listens on loopback and passes each request on, unless a rule has something else happen to it.

    Requests and responses pass as they were sent, so what the client signed stays true. It serves in threads of this
    process and ends with :meth:`close`.

    Args:
        host: the server's host.
        port: the server's port.

    Attributes:
        seen: all requests so far, in the order of their arrival.
        connections: how many connections were made to it.
        authority: turns each request, with its body, into the one that the server gets; a test may sign it anew.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.seen: list[Request] = []
        self.connections = 0
        self.authority: Callable[[Request, bytes], Request] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._listen()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arm(
        self,
        fault: Fault,
        *operations: Operation,
        key: str = "",
        where: Callable[[Request], bool] = lambda request: True,
        skip: int = 0,
        times: int | None = 1,
    ) -> Rule:
        """Have a fault strike; of several rules that take a request, the one that was armed last has it."""
        rule = Rule(fault, operations, key, where, skip, times)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def disarm(self) -> None:
        """End all rules."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.end()

    def refuse(self) -> None:
        """Be a port on which nobody listens; connections that were kept are closed."""
        self._stop_listening()
        self._drop_connections()

    def accept(self) -> None:
        """Listen again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def turn_to(self, host: str, port: int) -> None:
        """Have another server behind it from now on."""
        self._server = (host, port)

    def count(self, *operations: Operation, key: str = "") -> int:
        """How many requests of some kind have come."""
        return sum(1 for each in self.seen if each.operation in operations and re.search(key, each.key))

    def close(self) -> None:
        self._closed = True
        self.disarm()
        self._stop_listening()
        self._drop_connections()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a connection of the proxy does not end"

    def _listen(self) -> None:
        self._start(self._accept_all, self._listener)

    def _start(self, act: Callable[[socket.socket], None], of: socket.socket) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=act, args=(of,), name=f"proxy on {self.port}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop_listening(self) -> None:
        # A thread that waits in accept() keeps the port open until it is woken.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _drop_connections(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept_all(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
                self.connections += 1
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        client = Wire(connection)
        try:
            with contextlib.closing(connection), contextlib.suppress(Gone, OSError):
                while not self._closed and self._serve_one(client):
                    pass
                # What was sent must not be lost to a reset because of what was not read.
                connection.shutdown(socket.SHUT_WR)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _serve_one(self, client: Wire) -> bool:
        request = client.read_request()
        with self._lock:
            self.seen.append(request)
            rule = next((each for each in self._rules if each.takes(request)), None)
        exchange = Exchange(request, client, self._connect, rule, self.authority)
        if rule is not None:
            rule.fault(exchange)
        else:
            exchange.answer(exchange.forward())
        return exchange.keeps_connection

    def _connect(self) -> socket.socket:
        try:
            return socket.create_connection(self._server, timeout=60)
        except OSError as error:
            raise Gone(str(error)) from None
