"""Redirects: whether the server of an endpoint sends its clients elsewhere, found out before anything secret is sent.

The client for ledgers follows redirects, and it hands a session token on to wherever they lead; it can be kept from
other hosts, but not from another port of the same one, and behind a proxy not at all.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import Any, Optional
from urllib.parse import urljoin, urlsplit

from prefect_dispatch.format.printable import printable


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, *of: Any) -> None:
        """Leave it at the answer that says so."""


def redirect_of(
    endpoint: str, bucket: str, seconds: float, authorities: str = "", verify: bool = True
) -> Optional[str]:
    """Ask a server for a bucket, without credentials, and see where it sends its clients.

    Args:
        endpoint: its URL.
        bucket: the bucket.
        seconds: how long it may take.
        authorities: a file of certificate authorities to trust; empty for those of the system.
        verify: whether the server's certificate is looked at.

    Returns:
        The URL of the other server; None where this one answers itself, whatever it says.

    Raises:
        OSError: it did not answer.
    """
    url = f"{endpoint}/{bucket}"
    handlers: Any = [_Stay]
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=authorities or None)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    try:
        opener.open(urllib.request.Request(url, method="HEAD"), timeout=seconds).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        target = answer.headers.get("Location") or ""
        if 300 <= answer.code < 400 and target:
            return _other_server(url, target)
    return None


def _other_server(url: str, target: str) -> Optional[str]:
    try:
        here, there = _server_of(url), _server_of(urljoin(url, target))
    except ValueError:
        return "an address that is none"
    return None if here == there else printable(there, 200)


def _server_of(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return f"{parts.scheme}://{parts.hostname}:{port}"
