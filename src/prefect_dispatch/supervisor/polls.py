"""When a poller last looked after a store, as a name in a ledger: for people, who must see when none does any more."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from prefect_dispatch.errors import Absent, DispatchError, Exists
from prefect_dispatch.supervisor.places import open_polls

POLL_CESSATION = "cessation"
RECONCILE = "reconcile"
_DIGITS = 20


def note_poll(record_root: str, poller: str, at: datetime) -> None:
    """Note that a poller has looked after a store, without any trouble. What was noted before is taken away.

    Nothing follows from it: a note that cannot be written is left out.
    """
    name = f"{poller}-{int(at.timestamp()):0{_DIGITS}d}"
    with contextlib.suppress(DispatchError):
        ledger = open_polls(record_root)
        with contextlib.suppress(Exists):
            ledger.create(name)
        for known in ledger.names():
            if known.startswith(f"{poller}-") and known != name:
                with contextlib.suppress(Absent):
                    ledger.remove(known)


def last_poll(record_root: str, poller: str) -> datetime | None:
    """When a poller last looked after a store, by its own clock; None where none has, or it cannot be told."""
    try:
        names = open_polls(record_root).names()
    except DispatchError:
        return None
    numbers = [name.removeprefix(f"{poller}-") for name in names if name.startswith(f"{poller}-")]
    seconds = [int(number) for number in numbers if len(number) == _DIGITS and number.isascii() and number.isdigit()]
    try:
        return datetime.fromtimestamp(max(seconds), UTC) if seconds else None
    except (OverflowError, ValueError):
        return None
