"""Which processes of an execution live, as ``/proc`` has it."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.format.contract import ATTEMPT


def living(attempt: str) -> list[int]:
    """The pids of the living processes whose environment carries this attempt, in ascending order.

    A process that was started with a cleared environment is not among them, nor is another user's.
    """
    entry = f"{ATTEMPT}={attempt}".encode()
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if entry in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
