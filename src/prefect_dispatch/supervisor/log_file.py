"""Reading a job's log, which may hold any bytes and may not even be a file."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from prefect_dispatch.errors import Absent, StoreError
from prefect_dispatch.format.printable import printable

TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
MOST_LINE = 2000


def open_log(path: str) -> BinaryIO:
    """Open a log for reading.

    Raises:
        Absent: it is not there (yet).
        StoreError: it is no regular file, or cannot be read. A symbolic link is none: a job that can write beside its
            log could have us show what only we may read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Absent(f"log {path} is not there") from None
    except OSError as error:
        raise StoreError(f"log {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"log {path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def tail_of(path: str) -> str:
    """The last 200 lines of a log, at most 64 KiB, as harmless text; or why it cannot be read."""
    try:
        with open_log(path) as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            text = log.read(TAIL_BYTES).decode("utf-8", "replace")
    except StoreError as error:
        return f"({error})"
    return "\n".join(printable(line, MOST_LINE) for line in text.splitlines()[-TAIL_LINES:])
