"""Redirects: whether the server of an endpoint sends its clients elsewhere, found out before anything secret is sent.

The client for ledgers follows redirects, and it hands a session token on to wherever they lead; it can be kept from
other hosts, but not from another port of the same one, and behind a proxy not at all.
"""

from __future__ import annotations

from typing import Optional
from urllib.parse import urljoin, urlsplit

from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_errors import Answered
from prefect_dispatch.stores.s3_http import PlainRequests


def redirect_of(requests: PlainRequests, url: str) -> Optional[str]:
    """Ask a server without credentials, and see where it sends its clients.

    Returns:
        The URL of the other server; None where this one answers itself, whatever it says.

    Raises:
        OSError: it did not answer.
    """
    try:
        requests.ask("HEAD", url)
    except Answered as answer:
        if 300 <= answer.status < 400 and answer.location:
            return _other_server(url, answer.location)
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
