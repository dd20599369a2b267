"""Notices: the signals by which the wrapper is told that its program is to save and exit."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Optional


class Noticed(BaseException):
    """A notice came before the program was started. Not an Exception: nothing on the way may take it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Notices:
    """Takes the first of these signals as the notice and ignores every later one.

    A signal that was ignored when the wrapper started stays ignored, as nohup(1) means it; SIGTERM never does.

    Args:
        numbers: the signals.

    Attributes:
        first: the signal that came first; None while none came.
        descriptor: becomes readable with every signal and every :meth:`wake`.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.first: Optional[int] = None
        self._starting = True
        self.descriptor, self._waker = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in numbers:
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    def program_starts(self) -> None:
        """From now on a notice is for the program.

        Raises:
            Noticed: one came before.
        """
        self.raise_no_more()
        if self.first is not None:
            raise Noticed(self.first)

    def raise_no_more(self) -> None:
        """From now on a notice is only noted."""
        self._starting = False

    @staticmethod
    def no_more(numbers: Iterable[int]) -> None:
        """Ignore these signals for good: the exit code stands, and nothing that comes now may take its place.

        At its own end the interpreter gives every handler back to the kernel's default, except for ignored signals.
        """
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    def wake(self) -> None:
        """Make the descriptor readable."""
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:
            pass  # It is readable already.

    def clear(self) -> None:
        """Take away what made the descriptor readable."""
        try:
            os.read(self.descriptor, 4096)
        except BlockingIOError:
            pass

    def _take(self, number: int, _frame: object) -> None:
        if self.first is None:
            self.first = number
            if self._starting:
                raise Noticed(number)


def name_of_signal(number: int) -> str:
    """A signal's name, such as ``SIGTERM``; its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
