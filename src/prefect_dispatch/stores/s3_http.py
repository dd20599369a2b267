"""Plain requests to an endpoint, without either client: nothing is followed, and an answer is read as it is."""

from __future__ import annotations

import re
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Mapping, Optional

from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.stores.s3_errors import Answered

MAX_ANSWER_BYTES = 16 * 2**20
_BLOCK = 64 * 1024
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        """Leave it at the answer that says so."""


@dataclass(frozen=True)
class PlainRequests:
    """How an endpoint is asked.

    Args:
        seconds: how long an answer may take.
        authorities: a file of certificate authorities to trust; empty for those of the system.
        verify: whether the server's certificate is looked at.
    """

    seconds: float
    authorities: str = ""
    verify: bool = True

    def ask(self, method: str, url: str, headers: Optional[Mapping[str, str]] = None) -> bytes:
        """Make one request and return the body of its answer.

        Raises:
            Answered: the server says no, or sends us elsewhere.
            OSError: it does not answer, or not in time.
        """
        until = time.monotonic() + self.seconds
        request = urllib.request.Request(url, method=method, headers=dict(headers or {}))
        try:
            with self._opener(url).open(request, timeout=self.seconds) as answer:
                body = b""
                while block := answer.read1(_BLOCK):
                    body += block
                    if time.monotonic() > until:
                        raise TimeoutError("timed out")
                    if len(body) > MAX_ANSWER_BYTES:
                        raise Answered(int(answer.status), "TooLong")
                return body
        except urllib.error.HTTPError as answer:
            with answer:
                named = _CODE.search(answer.read(_BLOCK))
                code = named.group(1).decode("ascii") if named is not None else ""
                raise Answered(answer.code, code, answer.headers.get("Location") or "") from None

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        handlers: Any = [_Stay]
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=self.authorities or None)
            if not self.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)
