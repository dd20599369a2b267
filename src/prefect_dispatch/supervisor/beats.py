"""Signs of life of the processes that carry lineages: by them a process that was killed is told from one that waits.

A run that waits has no process. For it whoever knows it in Prefect gives a sign, so that one who looks at the same root
with another server sees that somebody has it.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from prefect_dispatch.errors import DispatchError, Exists
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.places import open_beats
from prefect_dispatch.supervisor.stamped_name import read_stamped_name, stamped_name

BEAT_EVERY = timedelta(seconds=30)
"""Between two signs of life of one process."""
DEAD_AFTER = timedelta(minutes=5)
"""After this time without one a process counts as killed. Should it live, it is overtaken, and nothing is lost."""
VOUCH_EVERY = timedelta(minutes=2)
"""Between two signs that are given for a run that waits: there may be a thousand of them."""
UNVOUCHED_AFTER = timedelta(minutes=10)
"""After this time without one a held lineage, whose run this server does not know, counts as one that nobody has."""


class Heart:
    """The signs of life of one process for one lineage. Each takes the place of the one before.

    One that cannot be written is left out: whoever misses it has another process take over, which is no harm.

    Args:
        record_root: where the lineage's record is.
        lineage: its name.
        carrier: in whose name the process carries it: the id of its flow run, or what ``process_carrier`` gives.
        clock: the process's.
    """

    def __init__(self, record_root: str, lineage: str, carrier: str, clock: Clock) -> None:
        self._root = record_root
        self._prefix = f"{lineage}.{carrier}."
        self._clock = clock
        self._next = 0.0
        self._last = ""

    def beat(self) -> None:
        """Give a sign of life, if it is time for one."""
        now = self._clock.monotonic()
        if self._last and now < self._next:
            return
        self._next = now + BEAT_EVERY.total_seconds()
        name = stamped_name(self._prefix, self._clock.now())
        with contextlib.suppress(DispatchError):
            ledger = open_beats(self._root)
            with contextlib.suppress(Exists):
                ledger.create(name)
            if self._last not in ("", name):
                ledger.remove(self._last)
            self._last = name

    def stop(self) -> None:
        """Take the last sign away: this process carries the lineage no more."""
        if self._last:
            with contextlib.suppress(DispatchError):
                open_beats(self._root).remove(self._last)


def vouch(record_root: str, lineage: str, carrier: str, last: datetime | None, now: datetime) -> None:
    """Give a sign for a run that waits without a process, if it is time for one. It takes the place of the one before.

    Args:
        record_root: where the lineage's record is.
        lineage: its name.
        carrier: the run's id.
        last: when the last one was given, as :func:`last_beats` tells it.
        now: the time.
    """
    if last is not None and abs(now - last) < VOUCH_EVERY:
        return
    with contextlib.suppress(DispatchError):
        ledger = open_beats(record_root)
        with contextlib.suppress(Exists):
            ledger.create(stamped_name(f"{lineage}.{carrier}.", now))
        if last is not None:
            ledger.remove(stamped_name(f"{lineage}.{carrier}.", last))


def last_beats(record_root: str) -> dict[tuple[str, str], datetime]:
    """When each process last gave a sign of life, by its own clock: by lineage and carrier.

    Raises:
        StoreError: they cannot be listed.
    """
    found: dict[tuple[str, str], datetime] = {}
    for name in open_beats(record_root).names():
        read = _read(name)
        if read is not None:
            key, at = read
            found[key] = max(at, found.get(key, at))
    return found


def sweep_beats(record_root: str, before: datetime) -> None:
    """Take away the signs of processes that gave none since a time."""
    with contextlib.suppress(DispatchError):
        ledger = open_beats(record_root)
        for name in ledger.names():
            read = _read(name)
            if read is None or read[1] < before:
                ledger.remove(name)


def _read(name: str) -> tuple[tuple[str, str], datetime] | None:
    read = read_stamped_name(name)
    if read is None:
        return None
    lineage, _, rest = read[0].partition(".")
    carrier, end = rest[:-1], rest[-1:]
    return ((lineage, carrier), read[1]) if carrier and end == "." else None
