"""Processes that are found by a mark in their environment, whoever their parent is by now."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path


def processes_with(mark: str) -> list[int]:
    """The processes, zombies aside, in whose environment a variable is set to a value.

    Args:
        mark: ``NAME=VALUE``.
    """
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def kill_each(processes: Iterable[int]) -> None:
    """Kill processes that were there a moment ago; one that has ended since is as good as killed."""
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
