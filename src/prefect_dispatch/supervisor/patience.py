"""Reading a record again and again, while its store may be away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from prefect_dispatch.errors import StoreError, StoreUnreachable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.trouble import Tell, Trouble

PAUSE_SECONDS = 1.0


class PatientReader:
    """Reads a record that was read before. Once it can be read, that it cannot be any more is told, and is no error.

    Args:
        record: the record.
        tell: told once of each time that it is away, again where the reason changes, and when that is over.
        sleep: waits for some seconds.
    """

    def __init__(self, record: Record, tell: Tell, sleep: Callable[[float], None] = time.sleep) -> None:
        self._record = record
        self._tell = tell
        self._sleep = sleep
        self._trouble = Trouble()

    def read(self) -> LineageState:
        """What the record comes to; while it is away, what it came to last.

        Raises:
            StoreUnreachable: it could never be read.
            StoreError: likewise.
        """
        try:
            state = self._record.refresh()
        except (StoreError, StoreUnreachable) as error:
            if self._record.last is None:
                raise
            self._trouble.note(str(error), self._tell)
            return self._record.last
        self._trouble.end(self._tell)
        return state

    def wait(self) -> LineageState:
        """What the record comes to, once it can be read; errors as for :meth:`read`."""
        state = self.read()
        while self._trouble.lasts:
            self._sleep(PAUSE_SECONDS)
            state = self.read()
        return state
