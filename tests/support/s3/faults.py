"""What may become of a request to an S3 server: the faults that a proxy makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from support.s3.messages import Gone, Request, Response
from support.s3.proxy import Exchange

XML = ("Content-Type", "application/xml")
_PLENTY = 1 << 40


def serve(exchange: Exchange) -> None:
    """No fault; in front of a wider rule it lets some requests pass."""
    exchange.answer(exchange.forward())


def lose_reply(exchange: Exchange) -> None:
    """The server serves the request, and the connection breaks before its answer."""
    exchange.forward()


def lose_request(exchange: Exchange) -> None:
    """The connection breaks before the server has the request."""
    exchange.body()


def hang(exchange: Exchange) -> None:
    """Nothing comes; the server does not have the request."""
    exchange.body()
    exchange.hold()


def hang_served(exchange: Exchange) -> None:
    """The server serves the request, and nothing comes."""
    exchange.forward()
    exchange.hold()


def hold_upload(exchange: Exchange) -> None:
    """The body is taken no further than its beginning; let go, the request is lost."""
    exchange.invite_body()
    exchange.hold()


def wait_and_serve(exchange: Exchange) -> None:
    """The request is taken, and served when it is let go."""
    exchange.body()
    exchange.hold()
    exchange.answer(exchange.forward())


def strip_condition(exchange: Exchange) -> None:
    """The condition is ignored, as careless servers do. It is signed, so the proxy has to sign anew."""
    exchange.answer(exchange.forward(exchange.request.without("if-none-match")))


@dataclass(frozen=True)
class Answer:
    """An error instead of an answer.

    Args:
        status: the HTTP status.
        code: the S3 error code.
        served: whether the server has served the request nevertheless.
        headers: more headers, such as ``Retry-After``.
    """

    status: int
    code: str
    served: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def __call__(self, exchange: Exchange) -> None:
        if self.served:
            exchange.forward()
        exchange.answer(self.response(exchange.request))

    def response(self, request: Request) -> Response:
        text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{self.code}</Code><Message>made by a test</Message>'
        body = f"{text}<Resource>/{request.bucket}</Resource><RequestId>0</RequestId></Error>".encode()
        answer = Response(self.status, (XML, *self.headers)).with_body(body)
        return replace(answer, body=b"") if request.method == "HEAD" else answer


@dataclass(frozen=True)
class Text:
    """A success whose body is somebody else's.

    Args:
        body: the body.
        kind: its type.
    """

    body: bytes
    kind: str

    def __call__(self, exchange: Exchange) -> None:
        answer = Response(200, (("Content-Type", self.kind),)).with_body(self.body)
        exchange.answer(replace(answer, body=b"") if exchange.request.method == "HEAD" else answer)


@dataclass(frozen=True)
class Cut:
    """The body breaks off after some bytes, which its length or its framing shows, and the connection with it.

    Args:
        after: how many bytes come; a negative number counts from the end.
    """

    after: int

    def __call__(self, exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send(response.head() + response.body[: self.after])


@dataclass(frozen=True)
class Shorten:
    """The body is shorter than the object, and its length says so: nothing but its bytes shows it.

    Args:
        by: how many bytes are missing at the end.
    """

    by: int = 1

    def __call__(self, exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.answer(response.with_body(response.body[: max(0, len(response.body) - self.by)]))


def corrupt(exchange: Exchange) -> None:
    """One bit in the middle of the body is another."""
    response = exchange.forward()
    exchange.answer(response.with_body(_with_one_bit_wrong(response.body)))


def corrupt_upload(exchange: Exchange) -> None:
    """One bit in the middle of what is sent comes to the server as another."""
    exchange.answer(exchange.forward(body=_with_one_bit_wrong(exchange.body())))


def _with_one_bit_wrong(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else body


@dataclass(frozen=True)
class HangInBody:
    """The body comes to a halt after some bytes.

    Args:
        after: how many bytes come.
    """

    after: int = 1

    def __call__(self, exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send(response.head() + response.body[: self.after])
        exchange.hold()


@dataclass(frozen=True)
class Drip:
    """The body comes a few bytes at a time.

    Args:
        bytes_at_once: how many.
        pause: seconds between them.
        total: after how many bytes the rest comes at once.
    """

    bytes_at_once: int = 1
    pause: float = 0.05
    total: int = _PLENTY

    def __call__(self, exchange: Exchange) -> None:
        response = exchange.forward()
        exchange.send(response.head())
        dripped = min(self.total, len(response.body))
        for start in range(0, dripped, self.bytes_at_once):
            if exchange.rule is not None and exchange.rule.ended.wait(self.pause):
                raise Gone("the rule has ended")
            exchange.send(response.body[start : min(start + self.bytes_at_once, dripped)])
        exchange.send(response.body[dripped:])


@dataclass(frozen=True)
class BreakUpload:
    """The connection to the server breaks in the middle of the request's body, then the one to the client.

    Args:
        after: how many bytes the server gets.
    """

    after: int = 1

    def __call__(self, exchange: Exchange) -> None:
        exchange.forward_part_of_body(self.after)


@dataclass
class Replay:
    """A listing that is answered as it was before: the pages that came while it was recording.

    Attributes:
        recording: whether pages are served and kept, or served as they were kept.
    """

    recording: bool = True
    pages: dict[str, Response] = field(default_factory=dict)

    def __call__(self, exchange: Exchange) -> None:
        page = exchange.request.target
        if self.recording or page not in self.pages:
            self.pages[page] = exchange.forward()
        exchange.answer(self.pages[page])


@dataclass
class RepeatPage:
    """Every further page of a listing is its first one again, which says that another follows.

    Attributes:
        first: the first page of each listing.
    """

    first: dict[str, Response] = field(default_factory=dict)

    def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        if not request.is_next_page:
            self.first[request.key] = exchange.forward()
        exchange.answer(self.first.get(request.key) or exchange.forward())


@dataclass(frozen=True)
class Redirect:
    """The answer sends the client to another host, as one that knows the bucket in another region does.

    Args:
        endpoint: where to.
        status: 307, or 301.
    """

    endpoint: str
    status: int = 307

    def __call__(self, exchange: Exchange) -> None:
        answer = Answer(
            self.status, "TemporaryRedirect", headers=(("Location", self.endpoint + exchange.request.target),)
        )
        answer(exchange)


@dataclass(frozen=True)
class InTurn:
    """Another fault each time, and no fault after the last one.

    Args:
        faults: what comes one after another.
    """

    faults: tuple[Callable[[Exchange], None], ...]

    def __call__(self, exchange: Exchange) -> None:
        assert exchange.rule is not None
        number = len(exchange.rule.struck) - 1
        (self.faults[number] if number < len(self.faults) else serve)(exchange)


CONFLICT = Answer(409, "ConditionalRequestConflict")
INTERNAL_ERROR = Answer(500, "InternalError")
INTERNAL_ERROR_SERVED = Answer(500, "InternalError", served=True)
SLOW_DOWN = Answer(503, "SlowDown", headers=(("Retry-After", "1"),))
SLOW_DOWN_SERVED = Answer(503, "SlowDown", served=True, headers=(("Retry-After", "1"),))
FORBIDDEN = Answer(403, "AccessDenied")
EXPIRED = Answer(400, "ExpiredToken")
SKEWED = Answer(403, "RequestTimeTooSkewed")
NO_BUCKET = Answer(404, "NoSuchBucket")
ERROR_IN_200 = Answer(200, "InternalError")


def tag_of_its_own(exchange: Exchange) -> None:
    """The server's tag says nothing about the bytes, as where a key management service encrypts them."""
    response = exchange.forward()
    kept = tuple(each for each in response.headers if each[0].lower() != "etag")
    other = replace(response, headers=(*kept, ("ETag", '"of-another-kind"')))
    if exchange.request.method == "HEAD":
        exchange.send(other.head())
        exchange.keeps_connection = True
    else:
        exchange.answer(other.with_body(re.sub(rb"<ETag>.*?</ETag>", b"<ETag>of-another-kind</ETag>", response.body)))


LOGIN_PAGE = Text(b"<!DOCTYPE html><html><body>Please log in</body></html>", "text/html")
"""What a portal or a proxy answers in the server's place."""
ERROR_IN_200_SERVED = Answer(200, "InternalError", served=True)
