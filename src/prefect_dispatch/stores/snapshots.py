"""Snapshots: numbered copies of saves that their program may write over, and the saves that are a state alone."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, Exists, MalformedName, Unpublishable
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.names import MAX_PATH_BYTES
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.layout import numbers_folder, snapshot_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

    from prefect_dispatch.stores.port import Store

STATE_FILE = "state"
_ANY_NAME = "save"
_DIGITS = 20


def take_number(store: Store, attempt: str) -> int:
    """Take the next number of an execution. It is this caller's alone, and greater than every one taken before.

    Raises:
        MalformedName: the ledger of numbers holds a name that is none.
        StoreError: the store failed.
    """
    ledger = store.ledger(numbers_folder(attempt))
    names = ledger.names()
    number = parse_number(names[-1], attempt) if names else 0
    while True:
        number += 1
        reach("number")
        try:
            ledger.create(f"{number:0{_DIGITS}d}")
        except Exists:
            continue
        return number


def parse_number(name: str, attempt: str) -> int:
    """Read a name of ``numbers/``.

    Raises:
        MalformedName: it is not a number of 20 digits.
    """
    if len(name) != _DIGITS or not name.isascii() or not name.isdigit():
        raise MalformedName(
            f"{numbers_folder(attempt)}/{printable(name)} is not a number of {_DIGITS} digits; "
            "find out who wrote it, then move it away"
        )
    return int(name)


def take_snapshot(store: Store, attempt: str, path: str, files: Tuple[SavedFile, ...]) -> Tuple[int, str]:
    """Copy a save to a place of its own among an execution's snapshots.

    The copy has the save's own name where a publication's path has room for it.

    Args:
        store: the lineage's root.
        attempt: whose save it is.
        path: the save.
        files: its files.

    Returns:
        The snapshot's number and its path.

    Raises:
        Unpublishable: the save changed while it was copied.
        StoreError: the store failed.
    """
    number = take_number(store, attempt)
    folder = snapshot_folder(attempt, number)
    target = f"{folder}/{path.rpartition('/')[2]}"
    if len(target.encode("utf-8")) > MAX_PATH_BYTES:
        target = f"{folder}/{_ANY_NAME}"
    reach("snapshot")
    try:
        store.copy(path, target, files)
    except Absent as error:
        raise Unpublishable(
            f"save {path!r} changed while it was copied: {error}; publish it when it is whole"
        ) from None
    return number, target


def keep_state(store: Store, attempt: str, state: str) -> Tuple[int, str]:
    """Keep a save that is its state alone as a small file among the snapshots.

    Returns:
        Its number and its path.

    Raises:
        StoreError: the store failed.
    """
    number = take_number(store, attempt)
    folder = snapshot_folder(attempt, number)
    ledger, content = store.ledger(folder), state.encode("utf-8")
    reach("state")
    try:
        ledger.create(STATE_FILE, content)
    except Exists:
        # The number is nobody else's. A bucket whose answer was lost cannot tell whose a file without content is.
        if ledger.read(STATE_FILE) != content:
            raise
    return number, f"{folder}/{STATE_FILE}"
