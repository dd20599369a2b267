"""Redirects: whether the server of an endpoint sends its clients elsewhere, found out before anything secret is sent.

Both clients follow redirects, and hand a session token on to wherever they lead. The one for ledgers can be kept from
other hosts, but not from another port of the same one, and behind a proxy not at all. The one for saves would also send
the save there, and believe that one's word that it is kept: it is given sessions that follow none.
"""

from __future__ import annotations

from typing import Any, Optional
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


def straight(plain: Any) -> Any:
    """Of a class of aiobotocore's sessions, one whose requests follow no redirect; to be given as ``http_session_cls``.

    Args:
        plain: ``aiobotocore.httpsession.AIOHTTPSession``.
    """

    async def get_session(self: Any, proxy_url: Any) -> _Straight:
        return _Straight(await plain._get_session(self, proxy_url))

    return type("StraightSession", (plain,), {"_get_session": get_session})


class _Straight:
    """A session of aiohttp whose requests end with the first answer."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, *arguments: Any, **options: Any) -> Any:
        return self._session.request(*arguments, **options, allow_redirects=False)


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
