"""Moments: a writer's operations on the file system, counted, so that it can be stopped just before one of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from overlap_trials.schedule import Stop

_COUNTED = frozenset(
    {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.scandir", "os.listdir"}
)


class Moments:
    """Counts this process's operations and stops it at those of its plan.

    What counts is whatever changes or lists names, and opening a file to read or to write it; Python itself announces
    these, so each design is stopped in its own code, in between any two of its steps, without being prepared for it.

    Args:
        stops: where to stop, in order.
        usual: how many operations a phase has in this design: one that loads, and one that saves.
    """

    def __init__(self, stops: Sequence[Stop], usual: tuple[int, int]) -> None:
        self.counts: list[int] = []
        self._stops = list(stops)
        self._usual = usual
        self._phase = -1
        self._left: int | None = None

    def watch(self) -> None:
        """Count from now on, for as long as the process lives."""
        sys.addaudithook(self._hear)

    def enter(self, phase: int) -> None:
        """Begin a phase. A stop that the one before was too short for comes in this one."""
        self._phase = phase
        self.counts.append(0)
        if self._left is None and self._stops and self._stops[0].phase <= phase:
            stop = self._stops.pop(0)
            self._left = int(stop.fraction * self._usual[min(phase, 1)])

    def pass_one(self) -> None:
        """Count an operation that is about to happen, and stop before it if it is the one."""
        if self._phase < 0:
            return
        self.counts[-1] += 1
        if self._left is None:
            return
        if self._left > 0:
            self._left -= 1
            return
        self._left = None
        os.kill(os.getpid(), signal.SIGSTOP)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _COUNTED or (event == "open" and not arguments[2] & os.O_DIRECTORY):
            self.pass_one()
