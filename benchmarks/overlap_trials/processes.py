"""The processes of a trial: forked, so that no interpreter has to start; stopped, continued and killed by the trial."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ending import INTERRUPTIONS

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)
_PATIENCE = 60.0
"""Seconds that a process may take from one stop to the next; the machine is not to blame for more."""


class Hung(Exception):
    """A process neither stopped nor ended."""


def fork(work: Callable[[], None]) -> int:
    """Run something in a child that dies with this process, whatever this process dies of; returns its id."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        # One that is stopped before it is bound to its parent would outlive it.
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        return child
    code = 70
    try:
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(reading)
        os.close(writing)
        if os.getppid() == parent:
            work()
            code = 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else code
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an interruption wait until what belongs together is done; nothing within may take long."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_in_orphans() -> None:
    """Become the parent of whatever a child of this process leaves behind, so that it can be waited for."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Processes:
    """The writers of one trial, by number."""

    def __init__(self) -> None:
        self._stopped: dict[int, int] = {}
        self._running: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def run(self, number: int, work: Callable[[], None]) -> None:
        """Let a writer run: start it, or continue it where it was stopped. One that has ended stays so."""
        if number in self._ended or number in self._running:
            return
        child = self._stopped.pop(number, None)
        if child is None:
            # An interruption must not come between: a writer that nobody knows of outlives its folder.
            with _uninterrupted():
                self._running[number] = fork(work)
        else:
            self._running[number] = child
            os.kill(child, signal.SIGCONT)

    def settle(self, victim: int | None = None, delay: float = 0.0) -> None:
        """Wait until nobody runs any more.

        Args:
            victim: who is stopped from here, wherever it is; None for nobody.
            delay: after how many seconds.

        Raises:
            Hung: somebody goes on and on.
        """
        signal.signal(signal.SIGALRM, self._give_up)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
        try:
            if victim in self._running:
                time.sleep(delay)
                os.kill(self._running[victim], signal.SIGSTOP)
            for number in list(self._running):
                self._wait_for(number)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def left(self) -> set[int]:
        """Who is there and has not ended."""
        return {*self._stopped, *self._running}

    def exit_codes(self) -> dict[int, int]:
        """What those who have ended came out with; the negative number of a signal that killed them."""
        return dict(self._ended)

    def kill(self, number: int) -> None:
        """Kill a writer that is there."""
        with _uninterrupted():
            child = self._stopped.pop(number, None) or self._running.pop(number, None)
            if child is not None:
                os.kill(child, signal.SIGKILL)
                status = _wait_for_the_end(child)
                self._ended[number] = os.waitstatus_to_exitcode(status)

    def kill_all(self) -> None:
        """Leave nobody."""
        for number in self.left():
            self.kill(number)

    def _wait_for(self, number: int) -> None:
        child = self._running[number]
        os.waitid(os.P_PID, child, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        # Nor here: one that was waited for is no process any more, and must not be thought to run.
        with _uninterrupted():
            _, status = os.waitpid(child, os.WUNTRACED)
            del self._running[number]
            if os.WIFSTOPPED(status):
                self._stopped[number] = child
            else:
                self._ended[number] = os.waitstatus_to_exitcode(status)

    def _give_up(self, received: int, frame: object) -> None:
        raise Hung(f"writers {sorted(self._running)} neither stop nor end")


def _wait_for_the_end(child: int) -> int:
    while True:
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            return status
