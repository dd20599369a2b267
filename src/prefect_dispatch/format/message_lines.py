"""Message lines: the lines of a byte stream that can be messages, found in bounded memory whatever the bytes are."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

KEYWORD = b"openjd_"
MAX_LINE_BYTES = 512 * 1024
"""The longest line that can be a message: the longest state and path with each byte as ``\\u00XX``, and room."""
MAX_PREFIX_BYTES = 64
"""The longest rank prefix, brackets and colon included."""
_MAX_HEAD = MAX_PREFIX_BYTES + len(KEYWORD)


class MessageLines:
    r"""Takes output as it comes and gives back the lines that begin like a message.

    A line ends at ``\n`` or ``\r``, so that a message behind a progress bar counts. Chunks without the keyword, which
    is nearly all of them, cost one search. A line that is longer than any message comes out cut, one byte longer than
    the limit, so that its reader can say so.
    """

    def __init__(self) -> None:
        self._head = b""
        """The open line so far, while it is too short to know whether it is a message."""
        self._message = bytearray()
        """The open line so far, once it is known to be a message."""
        self._skipping = False
        """Whether the open line cannot be a message (any more)."""

    def feed(self, chunk: bytes) -> List[bytes]:
        """Take the next bytes and return the message lines that they complete, without line ends."""
        lines: List[bytes] = []
        position = self._finish_open_line(chunk, lines)
        if position < 0:
            return lines
        data = self._head + chunk[position:] if self._head or position else chunk
        self._head = b""
        position = 0
        while True:
            found = data.find(KEYWORD, position)
            begin = _last_end(data, position, len(data) if found < 0 else found)
            if found < 0:
                self._keep_tail(data[begin : begin + _MAX_HEAD + 1])
                return lines
            end = _next_end(data, found)
            if _starts_message(data[begin:found]):
                if end < 0:
                    self._message += data[begin : begin + MAX_LINE_BYTES + 1]
                    return lines
                lines.append(data[begin : min(end, begin + MAX_LINE_BYTES + 1)])
            elif end < 0:
                self._skipping = True
                return lines
            position = end + 1

    def finish(self) -> List[bytes]:
        """Return the last line if it is a message that the stream's end has cut off its line end."""
        line, self._message = bytes(self._message), bytearray()
        return [line] if line else []

    def _finish_open_line(self, chunk: bytes, lines: List[bytes]) -> int:
        """Go on with a line whose kind is known; returns where the next one begins, -1 if the chunk ends before."""
        if not self._message and not self._skipping:
            return 0
        end = _next_end(chunk, 0)
        if self._message:
            room = MAX_LINE_BYTES + 1 - len(self._message)
            self._message += chunk[: min(room, end if end >= 0 else len(chunk))]
        if end < 0:
            return -1
        lines.extend(self.finish())
        self._skipping = False
        return end + 1

    def _keep_tail(self, tail: bytes) -> None:
        if len(tail) > _MAX_HEAD:
            self._skipping = True
        else:
            self._head = tail


def _starts_message(head: bytes) -> bool:
    """Whether the keyword after these first bytes of a line can begin a message: nothing, or one rank prefix."""
    return not head or (len(head) <= MAX_PREFIX_BYTES and head.startswith(b"[") and head.endswith(b"]:"))


def _next_end(data: bytes, start: int) -> int:
    r"""The first ``\n`` or ``\r`` at or after ``start``, or -1."""
    newline = data.find(b"\n", start)
    carriage = data.find(b"\r", start, newline if newline >= 0 else len(data))
    return carriage if carriage >= 0 else newline


def _last_end(data: bytes, start: int, stop: int) -> int:
    r"""The position after the last ``\n`` or ``\r`` between ``start`` and ``stop``, or ``start``."""
    newline = data.rfind(b"\n", start, stop)
    carriage = data.rfind(b"\r", max(newline, start), stop)
    last = max(newline, carriage)
    return last + 1 if last >= 0 else start
