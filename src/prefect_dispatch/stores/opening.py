"""Opening a store: from what people write to the store behind it, whose libraries are loaded then and not before."""

from __future__ import annotations

import os
import sys

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from prefect_dispatch.stores.port import Store
    from prefect_dispatch.stores.s3 import S3Store
    from prefect_dispatch.stores.transfer import Report

URL = "://"


def is_url(location: str) -> bool:
    """Whether a root is a URL, and not a folder."""
    return URL in location


def open_store(location: str) -> Store:
    """The store at a place. Nothing is asked or made yet.

    Args:
        location: a folder, or ``s3://bucket/prefix``.

    Raises:
        UsageError: it is neither.
    """
    if not is_url(location):
        from prefect_dispatch.stores.posix import PosixStore

        return PosixStore(location)
    return _open_bucket(location)


def open_managed_store(location: str, workplace: str, report: Optional[Report]) -> Store:
    """The store at a URL as an execution has it, whose program writes to a workplace on its machine.

    Raises:
        UsageError: there is no such kind of store.
    """
    _find_libraries()
    from prefect_dispatch.stores.s3_managed import ManagedStore
    from prefect_dispatch.stores.transfer import tell_nobody

    return ManagedStore(_open_bucket(location), workplace, report or tell_nobody)


def _open_bucket(location: str) -> S3Store:
    if not location.startswith("s3://"):
        raise UsageError(
            f"root {printable(location)!r} is of a kind that there is not; use a folder or s3://BUCKET/PREFIX"
        )
    _find_libraries()
    from prefect_dispatch.stores.s3 import S3Store
    from prefect_dispatch.stores.s3_accesses import access_for
    from prefect_dispatch.stores.s3_place import S3Place

    return S3Store(S3Place.parse(location), access_for(location))


def _find_libraries() -> None:
    """Look for where other packages are, where this Python was started without that (its option ``-S``)."""
    if sys.flags.no_site:
        import site

        site.main()


def join_root(root: str, name: str) -> str:
    """A place below a root."""
    return f"{root.rstrip('/')}/{name}" if is_url(root) else os.path.join(root, name)
