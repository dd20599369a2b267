"""Failpoints: where a test can kill a process, right before each of its durable steps.

For tests alone. ``DISPATCH_FAILPOINT=claim`` ends a process by SIGKILL when it gets there, and with ``claim:2`` when it
gets there for the second time; with ``DISPATCH_FAILPOINT_STOPS`` beside it by SIGSTOP, until somebody has it go on.
``docs/testing.md`` tells which processes the variable reaches. Unarmed, a failpoint costs a look at one variable of
this module; the names are not even loaded, since a wrapper starts on every node.
"""

from __future__ import annotations

import os
import signal

from prefect_dispatch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

POINT = "DISPATCH_FAILPOINT"
"""Where to be killed: ``NAME``, or ``NAME:K`` for the Kth time in one process."""
STOPS = "DISPATCH_FAILPOINT_STOPS"
"""Where it is set, the process is stopped there and not killed: a test can end somebody else just then."""
ONCE = "DISPATCH_FAILPOINT_ONCE"
"""A file that is made by the first process which is ended or stopped; where it is there already, none is."""
LOG = "DISPATCH_FAILPOINT_LOG"
"""A file to which each failpoint that is reached is appended, as ``PID NAME K``."""


class _Armed:
    """What the environment asks for, and how often each failpoint was reached in this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asked = environment.get(POINT, "")
        self._signal = signal.SIGSTOP if environment.get(STOPS) else signal.SIGKILL
        self._once = environment.get(ONCE, "")
        self._log = environment.get(LOG, "")
        self._reached: Dict[str, int] = {}
        self._process = os.getpid()

    def reach(self, name: str) -> None:
        if self._process != os.getpid():
            self._process, self._reached = os.getpid(), {}
        times = self._reached[name] = self._reached.get(name, 0) + 1
        if self._log:
            with open(self._log, "ab", buffering=0) as log:
                log.write(f"{self._process} {name} {times}\n".encode("ascii"))
        if self._asked and self._ask() == (name, times) and self._is_first():
            os.kill(self._process, self._signal)

    def _is_first(self) -> bool:
        if self._once:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                return False
        return True

    def _ask(self) -> Tuple[str, int]:
        from prefect_dispatch.failpoint import Failpoint

        name, _, number = self._asked.partition(":")
        try:
            return Failpoint(name).value, int(number or "1")
        except ValueError:
            raise UsageError(
                f"{POINT} {self._asked!r} is not a failpoint, or NAME:K with a number K; it is for tests: unset it"
            ) from None


_armed: Optional[_Armed] = None


def arm(environment: Mapping[str, str]) -> None:
    """From now on take from this environment what is asked for. Done at import with the process's own."""
    global _armed
    _armed = _Armed(environment) if POINT in environment or LOG in environment else None


def reach(name: str) -> None:
    """Come to a durable step; the process ends here, or stops, if the environment asks for it.

    Args:
        name: a :class:`~prefect_dispatch.failpoint.Failpoint`'s value.

    Raises:
        UsageError: the environment asks for a failpoint that is none.
    """
    if _armed is not None:
        _armed.reach(name)


arm(os.environ)
