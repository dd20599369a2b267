"""When a poller last looked after a store, as a name in a ledger: for people, who must see when none does any more."""

from __future__ import annotations

import contextlib
from datetime import datetime

from prefect_dispatch.errors import DispatchError, Exists
from prefect_dispatch.supervisor.places import open_polls
from prefect_dispatch.supervisor.stamped_name import read_stamped_name, stamped_name

POLL_CESSATION = "cessation"
RECONCILE = "reconcile"


def note_poll(record_root: str, poller: str, at: datetime) -> None:
    """Note that a poller has looked after a store, without any trouble. What was noted before is taken away.

    Nothing follows from it: a note that cannot be written is left out.
    """
    name = stamped_name(f"{poller}-", at)
    with contextlib.suppress(DispatchError):
        ledger = open_polls(record_root)
        with contextlib.suppress(Exists):
            ledger.create(name)
        for known in ledger.names():
            if known.startswith(f"{poller}-") and known != name:
                ledger.remove(known)


def last_poll(record_root: str, poller: str) -> datetime | None:
    """When a poller last looked after a store, by its own clock; None where none has, or it cannot be told."""
    try:
        names = open_polls(record_root).names()
    except DispatchError:
        return None
    read = [each for name in names if (each := read_stamped_name(name)) is not None]
    return max((at for prefix, at in read if prefix == f"{poller}-"), default=None)
