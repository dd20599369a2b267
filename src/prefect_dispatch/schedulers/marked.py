"""The processes of this machine that carry a mark in their environment: found in ``/proc``, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

LOOKS = 10
"""How often one looks at most: one that forks may do so between two looks."""
_PROC = Path("/proc")


def end_marked(name: str, value: str) -> None:
    """Kill every process that has a variable of its environment at a value, until a look finds none.

    What has emptied its environment, or runs as a user whose processes this one may not read, is not found.

    Args:
        name: of the variable.
        value: one that nothing else has.
    """
    mark = f"{name}={value}".encode()
    for _ in range(LOOKS):
        found = [pid for pid in _pids() if _carries(pid, mark)]
        if not found:
            return
        for pid in found:
            _kill(pid, mark)


def _pids() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]
    except OSError:
        return []


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _kill(pid: int, mark: bytes) -> None:
    with contextlib.suppress(OSError):
        # While this is open the number is of this process alone, so what is read afterwards is of the one that is hit.
        process = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
