"""Access of the tests' own to a server, and stores on it that nobody else has."""

from __future__ import annotations

import secrets
from datetime import timedelta

from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from support.s3.server import Server


def access_to(server: Server, **patience: timedelta) -> S3Access:
    """Access to a server as a block gives it.

    Args:
        server: the server.
        patience: what of it is not the default.
    """
    return S3Access(
        server.endpoint,
        "us-east-1",
        lambda again: Credentials(server.key, server.secret),
        patience=S3Patience(**patience),
    )


def new_url(server: Server, kind: str = "tests") -> str:
    """A root of its own in a server's bucket."""
    return f"s3://{server.bucket}/{kind}/{secrets.token_hex(8)}"


def store_at(server: Server, url: str, **patience: timedelta) -> S3Store:
    """The store at a URL of a server."""
    return S3Store(S3Place.parse(url), access_to(server, **patience))
