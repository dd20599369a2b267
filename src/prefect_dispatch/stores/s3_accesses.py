"""By which access a process reaches which root: as somebody told it, or else as its environment says."""

from __future__ import annotations

from typing import Dict, Optional

from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_environment import access_of_environment
from prefect_dispatch.stores.s3_place import SCHEME

_accesses: Dict[str, S3Access] = {}


def use_access(root: str, access: S3Access) -> None:
    """From now on reach a root, and all below it, by this access, in this process."""
    _accesses[root.rstrip("/")] = access


def variables_for(url: str) -> Dict[str, str]:
    """The variables by which a job reaches a root as this process does; none where it has the environment's own.

    Raises:
        StoreUnreachable: there are no credentials.
    """
    access = _told_for(url)
    return {} if access is None else access.variables()


def access_for(url: str) -> S3Access:
    """The access by which a root is reached: the one that was told for it, or for the nearest above; else the
    environment's.

    Raises:
        UsageError: the environment cannot be used.
    """
    return _told_for(url) or access_of_environment()


def _told_for(url: str) -> Optional[S3Access]:
    place = url.rstrip("/")
    while len(place) > len(SCHEME):
        if place in _accesses:
            return _accesses[place]
        place = place.rpartition("/")[0]
    return None
