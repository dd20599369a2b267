"""Transfers: what the log and the journal say of saves that are long on their way."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional, Tuple

from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.transfer import Direction, Transfer

EVERY = 10.0
"""Seconds between two lines about one transfer; what is faster than that is not told of."""


class Transfers:
    """Tells of transfers.

    Args:
        say: adds a line to the log.
        write: writes an entry into the journal.
        clock: monotonic seconds.
        every: seconds between two lines.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        write: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
        every: float = EVERY,
    ) -> None:
        self._say = say
        self._write = write
        self._clock = clock
        self._every = every
        self._current: Optional[Tuple[Direction, str]] = None
        self._told_at = 0.0
        self._told = False

    def take(self, transfer: Transfer) -> None:
        """Take note of how far a transfer is; tell it when it is time to."""
        now = self._clock()
        if self._current != (transfer.direction, transfer.path):
            self._current = (transfer.direction, transfer.path)
            self._told_at, self._told = now, False
        finished = transfer.done >= transfer.total
        if now - self._told_at < self._every and not (finished and self._told):
            return
        self._told_at, self._told = now, not finished
        word = "uploaded" if transfer.direction is Direction.UPLOAD else "downloaded"
        self._say(f"{word} {transfer.done:,} of {transfer.total:,} bytes of {printable(transfer.path)}")
        fields: Any = {"path": transfer.path, "done": transfer.done, "total": transfer.total}
        self._write(JournalKind.TRANSFER, direction=transfer.direction.value, **fields)
