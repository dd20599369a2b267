"""Asking a program to save and exit: a file, a signal, and the wait for a program that has only just begun."""

from __future__ import annotations

import json
import os
import signal

from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.format.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Callable, Optional

    from prefect_dispatch.format.submission import Notice
    from prefect_dispatch.job.clerk import Clerk
    from prefect_dispatch.job.program import Program

START_UP_GRACE = 60.0
"""Seconds of a program's life in which the signal waits until there is a handler for it: imports take that long."""
_MOST_OF_PERIOD = 0.5
"""The part of the notice period that the signal waits at most; the rest is for saving."""
_LOOK_SECONDS = 0.1


class Asking:
    """Asks one program, once.

    Args:
        program: which one.
        notice: the signal, and how long the program then has.
        file: the file that is made for programs that look rather than listen, absolute.
        clerk: keeps the journal.
        say: adds a line to the log.
    """

    def __init__(self, program: Program, notice: Notice, file: str, clerk: Clerk, say: Callable[[str], None]) -> None:
        self._program = program
        self._notice = notice
        self._file = file
        self._clerk = clerk
        self._say = say
        self._number = getattr(signal, f"SIG{notice.signal}")
        self._signal_by: Optional[float] = None

    @property
    def period(self) -> timedelta:
        """How long the program has where nothing leaves it less."""
        return self._notice.period

    @property
    def patience(self) -> float:
        """Seconds for which there is nothing to be done."""
        return float("inf") if self._signal_by is None else _LOOK_SECONDS

    def ask(self, cause: Optional[str], period: timedelta, now: float) -> None:
        """Ask the program. One that cannot hear yet gets the file now, and the signal as soon as it can.

        Args:
            cause: why.
            period: how long it has; the wait for it to begin counts.
            now: the monotonic clock's time, in seconds.
        """
        self._say(
            f"notice: SIG{self._notice.signal} to the program, which has {describe_duration(period)} "
            f"to save and exit ({cause})"
        )
        seconds = period.total_seconds()
        self._clerk.note(JournalKind.NOTICE, signal=self._notice.signal, cause=cause, period_seconds=seconds)
        self._make_file(cause, seconds)
        self._signal_by = min(self._program.begun_at + START_UP_GRACE, now + _MOST_OF_PERIOD * seconds)
        if now < self._signal_by and not self._program.hears(self._number):
            self._say(
                f"the program has no handler for SIG{self._notice.signal} yet: the signal waits for one, "
                f"at most {self._signal_by - now:.0f}s"
            )
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Send the signal that is still to be sent, if it is time for it."""
        if self._signal_by is None or (now < self._signal_by and not self._program.hears(self._number)):
            return
        self._signal_by = None
        self._program.notify(self._number)

    def _make_file(self, cause: Optional[str], seconds: float) -> None:
        """Make the file, whole as soon as it is there. Without it there is still the signal."""
        content = json.dumps({"signal": self._notice.signal, "cause": cause, "period_seconds": seconds})
        temporary = f"{self._file}.new"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(f"{content}\n")
            os.replace(temporary, self._file)
        except OSError as error:
            self._say(f"the notice's file cannot be made: {printable(str(error))}")
