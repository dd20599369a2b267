"""Endpoints: the URL of the server of an object store, and whether requests go to it directly."""

from __future__ import annotations

from urllib.parse import urlsplit

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.printable import printable


def check_endpoint(endpoint: str) -> str:
    """Return an endpoint's URL without a '/' at its end.

    Raises:
        UsageError: it is no URL of a server, or holds credentials.
    """
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        usable = usable and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        usable = False
    if not usable:
        shown = "it" if "@" in endpoint else printable(repr(endpoint), 200)
        raise UsageError(f"endpoint: {shown} is no URL of a server; write https://HOST or http://HOST:PORT")
    return endpoint.rstrip("/")


def amazon_endpoint(region: str) -> str:
    """The endpoint of Amazon's own servers in a region."""
    return f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def proxy_of(endpoint: str) -> str:
    """The proxy that the environment names for requests to an endpoint, as host and port; empty where there is none."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(endpoint)
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or proxy_bypass(parts.hostname or ""):
        return ""
    # What comes before an '@' is a password.
    return printable(named.rpartition("@")[2].rpartition("//")[2].rstrip("/"), 200)
