"""Whether a program was asked to save and exit: for programs that look between two steps rather than handle signals."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from prefect_dispatch.format.contract import NOTICE, NOTICE_SIGNAL

LOOK_EVERY_SECONDS = 0.2
"""A step may take microseconds, and a look costs a file server a request."""


class _Question:
    """What is known of the answer in this process."""

    def __init__(self) -> None:
        self._asked = False
        self._next_look = float("-inf")
        self._listens = False

    def answer(self) -> bool:
        if self._asked:
            return True
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY_SECONDS
        path = os.environ.get(NOTICE, "")
        if path:
            self._listen()
            self._asked = os.path.exists(path)
        return self._asked

    def _listen(self) -> None:
        """Take the signal upon us where nobody else does: by default it would end the program before it could look."""
        if self._listens:
            return
        self._listens = True
        number = getattr(signal, f"SIG{os.environ.get(NOTICE_SIGNAL, '')}", None)
        if number is None or signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler):
            return
        try:
            signal.signal(number, self._take)
        except ValueError:
            return  # Only the main thread may; another one looks at the file.
        held = partial(signal.pthread_sigmask, signal.SIG_BLOCK, (number,))
        let_go = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, (number,))

        def leave() -> None:
            if signal.getsignal(number) == self._take:
                signal.signal(number, signal.SIG_DFL)
            let_go()

        # Whoever makes a child may end it by this very signal, also before the child has run a line.
        os.register_at_fork(before=held, after_in_parent=let_go, after_in_child=leave)

    def _take(self, _number: int, _frame: object) -> None:
        self._asked = True


_question = _Question()


def should_checkpoint() -> bool:
    """Whether this program was asked to save and exit. Ask between two steps; once true, it stays true.

    The first call, which belongs into the main thread and before the first step, keeps the notice's signal from ending
    the program, unless that has a handler of its own. Outside of ``dispatch-job run`` it is always false.

    Returns:
        Whether it was asked, at most 0.2 seconds late; over a network file system as late as that shows a new file.
    """
    return _question.answer()
