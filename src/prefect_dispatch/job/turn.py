"""Turn: only one of an execution's processes at a time publishes what its watch has found."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_POLL = 0.05


@contextmanager
def take_turn(folder: str, wait_seconds: float = 0.0) -> Iterator[bool]:
    """Have the turn while the block runs, if nobody else has it. It ends with its holder, however that ends.

    The turn spares work and double numbers; that no save is torn or lost does not hang on it. So where the file system
    has no locks, everybody has the turn at once.

    Args:
        folder: the execution's folder, absolute; it is what is locked, so that nothing is left behind.
        wait_seconds: how long to wait for who has it.

    Yields:
        Whether the caller has it.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        until = time.monotonic() + wait_seconds
        mine = _try(descriptor)
        while not mine and time.monotonic() < until:
            time.sleep(_POLL)
            mine = _try(descriptor)
        yield mine
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
