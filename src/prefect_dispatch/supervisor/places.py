"""Where lineages lie: from a root to the stores and ledgers in it."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.errors import Absent, StoreError, StoreUnreachable, UsageError
from prefect_dispatch.format.names import check_lineage
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.opening import is_url, join_root, open_store
from prefect_dispatch.stores.port import Ledger, Store
from prefect_dispatch.stores.s3_place import SCHEME, S3Place
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record


def absolute_root(root: str, base: Path) -> str:
    """A root made absolute.

    Args:
        root: a folder, or ``s3://bucket/prefix``.
        base: the folder that a relative one is relative to.

    Raises:
        UsageError: it is a URL of another kind, or not of a bucket.
    """
    if is_url(root):
        if not root.startswith(SCHEME):
            raise UsageError(f"root {root!r} is of a kind that there is not; use a folder or s3://BUCKET/PREFIX")
        return S3Place.parse(root).url
    return str((base / root).absolute())


def check_root(root: str) -> str:
    """Return a root that is absolute.

    Raises:
        UsageError: it is not, or is a URL of a store that there is not.
    """
    if absolute_root(root, Path("/")) != root:
        raise UsageError(f"root {root!r} is not absolute")
    return root


def root_visible(root: str) -> bool:
    """Whether this process can see a checkpoint root, or the folder that it will be made in.

    A bucket is always taken for visible: it is asked when something of it is wanted.
    """
    return is_url(check_root(root)) or _nearest(Path(root)).is_dir()


def check_reachable(root: str, may_be_away: bool = False) -> None:
    """Find out, changing nothing, that a root is there or can be made.

    Args:
        root: the root.
        may_be_away: whether it may lie out of this process's reach, so that only what is there and stands in its way is
            wrong.

    Raises:
        StoreUnreachable: something that is no folder is in its way, or it may not be written; or its bucket is not
            there, or the credentials do not open it.
    """
    if is_url(check_root(root)):
        _ask_bucket(root)
        return
    path = _nearest(Path(root))
    if not path.is_dir():
        raise StoreUnreachable(f"root {root} cannot be used: {path} is not a folder; name another root")
    # What is there may not be written by its job either, as far as can be seen from here.
    is_there = path == Path(root)
    if (is_there or not may_be_away) and not os.access(path, os.W_OK | os.X_OK):
        raise StoreUnreachable(f"root {root} cannot be used: {path} may not be written; name another root")


def _ask_bucket(root: str) -> None:
    try:
        open_store(root).ledger(".dispatch").read("there")
    except Absent:
        pass
    except StoreError as error:
        raise StoreUnreachable(f"root {root} cannot be used: {error}") from None


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest above it that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), path)


def open_index(record_root: str) -> Ledger:
    """The ledger of open lineages of a record root."""
    return open_store(check_root(record_root)).ledger(".dispatch/open")


def open_polls(record_root: str) -> Ledger:
    """The ledger in which pollers note when they last looked after a record root."""
    return open_store(check_root(record_root)).ledger(".dispatch/polls")


def open_beats(record_root: str) -> Ledger:
    """The ledger in which processes that carry lineages give their signs of life."""
    return open_store(check_root(record_root)).ledger(".dispatch/beats")


def open_record(record_root: str, lineage: str, clock: Clock, writer: str | None = None) -> Record:
    """A lineage's record."""
    store = open_store(join_root(check_root(record_root), check_lineage(lineage)))
    return Record(store, open_index(record_root), lineage, clock, writer)


def open_lineage_root(root: str, lineage: str) -> LineageRoot:
    """A lineage's checkpoint root."""
    return LineageRoot(open_store(join_root(check_root(root), check_lineage(lineage))))


def known_lineages(record_root: str) -> list[str]:
    """The lineages of a record root, sorted: those that have a record there, and those that are open.

    An open one without a record is away, and who looks at it is told.

    Raises:
        StoreError: the record root cannot be listed.
    """
    return sorted({*_recorded(record_root), *filter(_is_lineage, open_index(record_root).names())})


def _recorded(record_root: str) -> list[str]:
    if is_url(check_root(record_root)):
        store = open_store(record_root)
        return [name for name in store.folders("") if _is_lineage(name) and _has_record(store, name)]
    path = Path(record_root)
    try:
        names = [entry.name for entry in path.iterdir() if (entry / "record.json").is_file()]
    except OSError as error:
        raise StoreError(f"record root {path} cannot be listed: {error.strerror}; check --store") from None
    return [name for name in names if _is_lineage(name)]


def _has_record(store: Store, name: str) -> bool:
    try:
        store.ledger(name).read("record.json")
    except Absent:
        return False
    return True


def _is_lineage(name: str) -> bool:
    try:
        check_lineage(name)
    except UsageError:
        return False
    return True
