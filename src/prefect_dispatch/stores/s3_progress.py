"""Progress of a transfer, as s3fs tells of it file by file, and as it is reported."""

from __future__ import annotations

import time
from typing import Callable, Optional

from prefect_dispatch.stores.transfer import Report, Transfer


class Progress:
    """How far a transfer is, added up over its files and parts."""

    def __init__(self, transfer: Transfer, report: Report) -> None:
        self._transfer = transfer
        self._report = report
        self._done = 0
        self._moved = time.monotonic()
        self._reported = time.monotonic()

    @property
    def words(self) -> str:
        """The transfer, as a message names it."""
        return f"the {self._transfer.direction.value} of {self._transfer.path}"

    @property
    def stands_still_for_seconds(self) -> float:
        """For how many seconds nothing has moved, and nothing was read."""
        return time.monotonic() - self._moved

    def file(self) -> FileProgress:
        """What s3fs calls about one file."""
        return FileProgress(self.add)

    def add(self, count: int) -> None:
        """Bytes have moved; less than none where a try failed."""
        self._done += count
        self._moved = time.monotonic()

    def beat(self) -> None:
        """It goes on here, though nothing moves: a large file takes long to read."""
        self._moved = time.monotonic()

    def report(self, last: bool = False) -> None:
        """Report how far it is, once a second at the most; and at its end."""
        now = time.monotonic()
        if last or now - self._reported >= 1.0:
            self._reported = now
            told = self._transfer
            done = told.total if last else min(self._done, told.total)
            self._report(Transfer(told.direction, told.path, done, told.total))


class FileProgress:
    """What s3fs calls as it moves one file; what a failed try has moved is taken back.

    Attributes:
        count: how many bytes of the file have moved.
    """

    def __init__(self, add: Callable[[int], None]) -> None:
        self._add = add
        self.count = 0

    def __enter__(self) -> FileProgress:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], traceback: object) -> None:
        if error is not None:
            self._add(-self.count)

    def set_size(self, size: object) -> None:
        """The size is known already."""

    def relative_update(self, count: int = 1) -> None:
        """So many more bytes of the file have moved."""
        self.count += count
        self._add(count)
