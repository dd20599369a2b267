"""The relay: passes the program's output on unchanged, picks its messages out, and adds our own lines between its."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Callable, Deque, List, Optional

from prefect_dispatch.format.message_lines import MessageLines

_CHUNK = 1024 * 1024
_LINE_PATIENCE = 0.5
"""Seconds that a line of ours waits for the program to end its own line, which a progress bar never does."""


class Relay:
    """Owns our standard output.

    A thread of its own reads the program's pipe, so that neither a slow store nor a waiting wrapper makes the program
    wait. A closed standard output is survived: the output is then read and dropped.

    Args:
        on_line: called in that thread with each line that may be a message.
        target: the descriptor to write to.
    """

    def __init__(self, on_line: Callable[[bytes], None], target: int = 1) -> None:
        self._on_line = on_line
        self._target = target
        self._source = -1
        self._lines = MessageLines()
        self._pending: Deque[str] = deque()
        self._waiting_since: Optional[float] = None
        self._fresh = True
        """Whether the next byte begins a line."""
        self._broken = False
        self._closing = False
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._wake, self._waker = os.pipe()

    def start(self, source: int) -> None:
        """Begin to relay what arrives at a descriptor."""
        self._source = source
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Add one line of ours, at the next place where it splits none of the program's. Never waits for a reader."""
        self._pending.append(f"dispatch: {text}\n")
        if self._thread is None:
            self._flush()
        else:
            os.write(self._waker, b"x")

    def drain(self, grace: float) -> bool:
        """Wait until the program's output has ended; False if something still holds it open after the grace."""
        return self._ended.wait(grace)

    def close(self, grace: float) -> None:
        """Write what is pending and stop; gives a reader that does not read at most that many seconds."""
        if self._thread is not None:
            self._closing = True
            os.write(self._waker, b"x")
            self._thread.join(grace)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._source, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(100 if self._pending else None)}
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._source in ready:
                chunk = os.read(self._source, _CHUNK)
                if chunk:
                    self._take(self._lines.feed(chunk))
                    self._pass_on(chunk)
                else:
                    poll.unregister(self._source)
                    self._take(self._lines.finish())
                    self._ended.set()
            if self._pending and (self._fresh or self._ended.is_set() or self._closing or self._is_overdue()):
                self._flush()
            if self._closing and not self._pending:
                return

    def _take(self, lines: List[bytes]) -> None:
        for line in lines:
            try:
                self._on_line(line)
            except Exception as error:  # A reader that dies would block the program on a full pipe.
                self._pending.append(f"dispatch: internal error at a message: {type(error).__name__}: {error}\n")

    def _pass_on(self, chunk: bytes) -> None:
        end = chunk.rfind(b"\n") + 1 if self._pending else 0
        if end:
            view = memoryview(chunk)
            self._write(view[:end])
            self._fresh = True
            self._flush()
            self._write(view[end:])
            self._fresh = end == len(chunk)
        else:
            self._write(memoryview(chunk))
            self._fresh = chunk.endswith(b"\n")

    def _is_overdue(self) -> bool:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= _LINE_PATIENCE

    def _flush(self) -> None:
        self._waiting_since = None
        while self._pending:
            line = self._pending.popleft().encode("utf-8", "backslashreplace")
            self._write(memoryview(line if self._fresh else b"\n" + line))
            self._fresh = True

    def _write(self, data: memoryview) -> None:
        while data and not self._broken:
            try:
                data = data[os.write(self._target, data) :]
            except BlockingIOError:
                select.select([], [self._target], [])
            except OSError:
                self._broken = True
