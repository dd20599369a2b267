"""Plain requests to an endpoint, without either client: nothing is followed, and an answer is read as it is."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Mapping, Optional

from prefect_dispatch.stores.s3_errors import Answered, code_in

MAX_ANSWER_BYTES = 16 * 2**20
_BLOCK = 64 * 1024


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        """Leave it at the answer that says so."""


class PlainRequests:
    """How one endpoint is asked.

    Args:
        seconds: how long an answer may take.
        authorities: a file of certificate authorities to trust; empty for those of the system.
        verify: whether the server's certificate is looked at.
    """

    def __init__(self, seconds: float, authorities: str = "", verify: bool = True) -> None:
        self._seconds = seconds
        self._authorities = authorities
        self._verify = verify
        self._opener: Optional[urllib.request.OpenerDirector] = None

    def ask(self, method: str, url: str, headers: Optional[Mapping[str, str]] = None) -> bytes:
        """Make one request and return the body of its answer.

        Raises:
            Answered: the server says no, or sends us elsewhere.
            OSError: it does not answer, or not in time.
        """
        until = time.monotonic() + self._seconds
        request = urllib.request.Request(url, method=method, headers=dict(headers or {}))
        try:
            with self._open(request) as answer:
                body = _read(answer, MAX_ANSWER_BYTES, until)
                if len(body) > MAX_ANSWER_BYTES:
                    raise Answered(int(answer.status), "TooLong")
                return body
        except urllib.error.HTTPError as answer:
            with answer:
                code = code_in(_read(answer, _BLOCK, until).decode("utf-8", "replace"))
                raise Answered(answer.code, code, answer.headers.get("Location") or "") from None

    def _open(self, request: urllib.request.Request) -> Any:
        if self._opener is None:
            handlers: Any = [_Stay]
            if request.type == "https":
                # Reading the authorities takes longer than most answers.
                context = ssl.create_default_context(cafile=self._authorities or None)
                if not self._verify:
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                handlers.append(urllib.request.HTTPSHandler(context=context))
            self._opener = urllib.request.build_opener(*handlers)
        return self._opener.open(request, timeout=self._seconds)


def _read(answer: Any, most: int, until: float) -> bytes:
    """Read a body, or a little more than the most of it.

    Raises:
        TimeoutError: it is not there in time, however steadily it comes.
    """
    body = b""
    while len(body) <= most and (block := answer.read1(_BLOCK)):
        body += block
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return body
