"""The output: our standard output, which takes the program's bytes unchanged and our own lines between its lines."""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, List, Optional, Tuple

MAX_WAITING = 4 * 1024 * 1024
"""Bytes of the program's output that may wait for a slow reader; at more than that the program waits too."""
_MAX_LAST = 2 * MAX_WAITING
"""Bytes that may wait when nothing waits for the reader any more; all that the program's pipe can hold fits in."""
_MAX_LINES = 1000
"""Lines of ours that may wait; the oldest give way."""
_OVERHEAD = 64
"""What a chunk costs beside its bytes, so that many small ones are bounded too."""
_PIECE = 256 * 1024
"""Bytes of one write, so that a slow reader can be told from one that does not read."""
_LINE_PATIENCE = 0.5
"""Seconds that a line of ours waits for the program to end its own line, which a progress bar never does."""
_MAX_GRACES = 6
"""For how many graces in all a slow reader may take the last of it."""
_FINAL = (errno.EPIPE, errno.EBADF)
"""What write(2) says when nobody will ever read again. All else, such as a full disk, may pass."""


class Output:
    """Writes in a thread of its own, so that nobody who has something to say waits for a reader.

    Args:
        target: the descriptor to write to. That it is closed is survived; what is lost otherwise is told.
    """

    def __init__(self, target: int = 1) -> None:
        self._target = target
        self._changed = threading.Condition()
        self._chunks: Deque[bytes] = deque()
        self._waiting = 0
        self._ours: Deque[Tuple[int, float, str]] = deque()
        """Each line of ours, behind the program's output up to which position it belongs, and since when it waits."""
        self._put = 0
        """How much of the program's output was put in so far."""
        self._taken = 0
        """How much of it was taken out so far."""
        self._left_out = 0
        self._dropped = 0
        self._lost = 0
        self._reason = ""
        self._fresh = True
        """Whether the next byte begins a line."""
        self._gone = False
        self._hurried = False
        self._closing = False
        self._pieces = 0
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Begin to write; what is said before waits until then."""
        self._thread.start()

    def say(self, text: str) -> None:
        """Add one line of ours, at the next place where it splits none of the program's. Never waits for a reader."""
        with self._changed:
            if len(self._ours) >= _MAX_LINES:
                self._ours.popleft()
                self._left_out += 1
            self._ours.append((self._put, time.monotonic(), f"dispatch: {text}\n"))
            self._changed.notify_all()

    def put(self, chunk: bytes) -> None:
        """Add some of the program's output. Never waits for a reader."""
        with self._changed:
            if self._waiting >= _MAX_LAST:
                self._dropped += len(chunk)
                return
            self._chunks.append(chunk)
            self._waiting += len(chunk) + _OVERHEAD
            self._put += len(chunk)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait until a slow reader has caught up, so that memory is bounded; not at all once it is :meth:`hurry`."""
        with self._changed:
            while self._waiting >= MAX_WAITING and not (self._hurried or self._gone):
                self._changed.wait()

    def hurry(self) -> None:
        """From now on nothing waits for the reader: what does not fit into the memory set apart is lost, and told."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def close(self, grace: float) -> None:
        """Write what is pending and stop.

        Args:
            grace: seconds without any progress after which a reader is taken for one that does not read.
        """
        with self._changed:
            if self._dropped:
                self.say(f"{self._dropped} bytes of output after the program's end are lost: nobody read them in time")
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is None:
            self._thread.start()
        give_up = time.monotonic() + grace * _MAX_GRACES
        before = -1
        while self._thread.is_alive() and before != self._pieces and time.monotonic() < give_up:
            before = self._pieces
            self._thread.join(grace)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._chunks and not self._may_add():
                    if self._closing and not self._ours:
                        return
                    self._changed.wait(self._patience())
                chunk = self._chunks.popleft() if self._chunks else b""
                before = self._lines_up_to(self._taken) if self._may_add() else []
                self._taken += len(chunk)
                end = chunk.rfind(b"\n") + 1 if self._ours else 0
                after = self._lines_up_to(self._taken) if end else []
            self._add(before)
            if end:
                view = memoryview(chunk)
                self._write(view[:end])
                self._add(after)
                self._write(view[end:])
            else:
                self._write(memoryview(chunk))
            if chunk:
                with self._changed:
                    self._waiting -= len(chunk) + _OVERHEAD
                    self._changed.notify_all()

    def _may_add(self) -> bool:
        """Whether lines of ours may be added here: between two lines, or where the open one has been open for long."""
        return bool(self._ours) and (self._fresh or self._closing or self._patience() == 0)

    def _patience(self) -> Optional[float]:
        """Seconds until the oldest line of ours has waited for long enough; None if none waits."""
        return max(0.0, self._ours[0][1] + _LINE_PATIENCE - time.monotonic()) if self._ours else None

    def _lines_up_to(self, position: int) -> List[str]:
        """Take out the lines of ours that belong at or before a position of the program's output."""
        lines = []
        if self._left_out:
            lines.append(f"dispatch: {self._left_out} lines of ours are left out: nobody read them in time\n")
            self._left_out = 0
        while self._ours and self._ours[0][0] <= position:
            lines.append(self._ours.popleft()[2])
        return lines

    def _add(self, lines: List[str]) -> None:
        for line in lines:
            self._write(memoryview(self._own_line(line)))

    def _own_line(self, line: str) -> bytes:
        text = line.encode("utf-8", "backslashreplace")
        return text if self._fresh else b"\n" + text

    def _write(self, data: memoryview) -> None:
        """Write all of it, or note how much of it is lost."""
        while data and not self._gone:
            try:
                if self._lost:
                    self._tell_loss()
                written = os.write(self._target, data[:_PIECE])
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._target, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self._gone = error.errno in _FINAL
                self._lost += len(data)
                self._reason = error.strerror or type(error).__name__
                return
            else:
                self._took(data, written)
                data = data[written:]

    def _tell_loss(self) -> None:
        line = self._own_line(f"dispatch: {self._lost} bytes of output are lost here: {self._reason}\n")
        written = os.write(self._target, line)
        self._took(memoryview(line), written)
        if written == len(line):
            self._lost = 0

    def _took(self, data: memoryview, written: int) -> None:
        if written:
            self._fresh = data[written - 1] == ord("\n")
            self._pieces += 1
