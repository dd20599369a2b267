"""HTTP/1.1 messages as they come over a socket, and what a request asks of an S3 server."""

from __future__ import annotations

import enum
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import parse_qsl, unquote

MOST_HEAD_BYTES = 256 * 1024
BLOCK = 64 * 1024
_BODILESS = (204, 304)


class Gone(Exception):
    """The other side has closed its connection, or closed it in the middle of a message."""


class Operation(enum.Enum):
    """What a request asks of the server."""

    PUT = "put"
    GET = "get"
    HEAD = "head"
    DELETE = "delete"
    LIST = "list"
    BEGIN = "begin a multipart upload"
    PART = "upload a part"
    COMPLETE = "complete a multipart upload"
    ABORT = "abort a multipart upload"
    COPY = "copy"
    DELETE_MANY = "delete many"
    OTHER = "something else"


@dataclass(frozen=True)
class Request:
    """The head of a request.

    Args:
        method: the method.
        target: path and query, as they were sent.
        headers: names and values, in order, as they were sent.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def bucket(self) -> str:
        return self._parts[0]

    @property
    def key(self) -> str:
        """The key; for a listing its prefix."""
        return self._parts[1] or self.query.get("prefix", "")

    @property
    def operation(self) -> Operation:
        by_method = {
            "GET": Operation.GET if self._parts[1] else Operation.LIST,
            "HEAD": Operation.HEAD,
            "DELETE": Operation.ABORT if "uploadId" in self.query else Operation.DELETE,
            "PUT": Operation.PART if "uploadId" in self.query else Operation.PUT,
        }
        if self.method == "POST":
            for name, operation in (
                ("uploads", Operation.BEGIN),
                ("uploadId", Operation.COMPLETE),
                ("delete", Operation.DELETE_MANY),
            ):
                if name in self.query:
                    return operation
            return Operation.OTHER
        if self.header("x-amz-copy-source") is not None:
            return Operation.COPY
        if self.method == "PUT" and not self._parts[1]:
            return Operation.OTHER
        return by_method.get(self.method, Operation.OTHER)

    @property
    def is_next_page(self) -> bool:
        """Whether it asks for a page of a listing behind the first one."""
        return "continuation-token" in self.query or "marker" in self.query

    @property
    def access_key(self) -> str:
        """The key that signed it."""
        return (self.header("authorization") or "").partition("Credential=")[2].partition("/")[0]

    def header(self, name: str) -> str | None:
        return _header(self.headers, name)

    def without(self, *names: str) -> Request:
        """The request without some headers."""
        kept = tuple((each, value) for each, value in self.headers if each.lower() not in names)
        return replace(self, headers=kept)

    def head(self) -> bytes:
        return _head(f"{self.method} {self.target} HTTP/1.1", self.headers)

    @cached_property
    def _parts(self) -> tuple[str, str]:
        bucket, _, key = unquote(self.target.partition("?")[0]).removeprefix("/").partition("/")
        return bucket, key


@dataclass(frozen=True)
class Response:
    """A whole response.

    Args:
        status: the status.
        headers: names and values, in order, but those that say how the body is framed.
        body: the body; of the response to a HEAD there is none.
        length: what ``Content-Length`` says; None where there is no such header.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    length: int | None = 0

    def header(self, name: str) -> str | None:
        return _header(self.headers, name)

    def with_body(self, body: bytes) -> Response:
        return replace(self, body=body, length=len(body))

    def head(self) -> bytes:
        framing = () if self.length is None else (("Content-Length", str(self.length)),)
        return _head(f"HTTP/1.1 {self.status} {self.status}", (*self.headers, *framing))


class Wire:
    """One side's connection, read message by message."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""

    def read_request(self) -> Request:
        """Read the head of the next request.

        Raises:
            Gone: there is none.
        """
        first, headers = self._read_head()
        method, target, _ = first.split(" ", 2)
        return Request(method, target, headers)

    def read_response(self, method: str) -> Response:
        """Read the whole response to a request of this method.

        Raises:
            Gone: it does not come to its end.
        """
        while True:
            first, headers = self._read_head()
            status = int(first.split(" ", 2)[1])
            if status >= 200:
                break
        length = _header(headers, "content-length")
        own = tuple((name, value) for name, value in headers if name.lower() not in _FRAMING)
        if method == "HEAD" or status in _BODILESS:
            return Response(status, own, b"", None if length is None else int(length))
        body = b"".join(self.body(headers, until_closed=True))
        return Response(status, own, body, len(body))

    def body(self, headers: tuple[tuple[str, str], ...], until_closed: bool = False) -> Iterator[bytes]:
        """The body of a message with these headers, in blocks, without its framing.

        Raises:
            Gone: it does not come to its end.
        """
        if "chunked" in (_header(headers, "transfer-encoding") or "").lower():
            yield from self._chunks()
            return
        length = _header(headers, "content-length")
        if length is not None:
            left = int(length)
            while left:
                block = self._take(min(left, BLOCK))
                left -= len(block)
                yield block
        elif until_closed:
            while True:
                try:
                    yield self._take(BLOCK)
                except Gone:
                    return

    def _chunks(self) -> Iterator[bytes]:
        while True:
            left = int(self._line().partition(b";")[0], 16)
            if not left:
                while self._line():
                    pass
                return
            while left:
                block = self._take(left)
                left -= len(block)
                yield block
            self._line()

    def _read_head(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        lines = []
        while line := self._line():
            lines.append(line.decode("latin-1"))
        if not lines:
            raise Gone("an empty head")
        pairs = (line.partition(":") for line in lines[1:])
        return lines[0], tuple((name, value.strip()) for name, _, value in pairs)

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            assert len(self._buffer) < MOST_HEAD_BYTES, "a line without end"
            self._buffer += self._receive(BLOCK)
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _take(self, most: int) -> bytes:
        if not self._buffer:
            return self._receive(most)
        block, self._buffer = self._buffer[:most], self._buffer[most:]
        return block

    def _receive(self, most: int) -> bytes:
        try:
            block = self.socket.recv(most)
        except OSError as error:
            raise Gone(str(error)) from None
        if not block:
            raise Gone("the connection was closed")
        return block


_FRAMING = ("content-length", "transfer-encoding", "connection", "keep-alive")


def _header(headers: tuple[tuple[str, str], ...], name: str) -> str | None:
    return next((value for each, value in headers if each.lower() == name.lower()), None)


def _head(first: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")
