"""The relay: reads the program's pipe, picks its messages out, and passes everything on unchanged."""

from __future__ import annotations

import os
import threading

from prefect_dispatch.format.message_lines import MessageLines
from prefect_dispatch.job.output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

_CHUNK = 256 * 1024
"""Bytes of one read: what stays in a processor's cache until it is searched and written, which doubles the speed."""


class Relay:
    """Owns our standard output.

    One thread reads the program's pipe and its messages, another one writes, so that neither a slow store nor a
    waiting wrapper makes the program wait, and a reader of ours that stalls holds up no message: while the program runs
    it is read ahead of the reader by a bounded amount, and after its end to the last byte, whatever the reader does.

    Args:
        on_line: called in the reading thread with each line that may be a message.
        target: the descriptor to write to.
    """

    def __init__(self, on_line: Callable[[bytes], None], target: int = 1) -> None:
        self._on_line = on_line
        self._source = -1
        self._lines = MessageLines()
        self._output = Output(target)
        self._closing = False
        self._ended = threading.Event()

    def start(self, source: int) -> None:
        """Begin to relay what arrives at a descriptor."""
        self._source = source
        self._output.start()
        threading.Thread(target=self._run, name="relay", daemon=True).start()

    def say(self, text: str) -> None:
        """Add one line of ours, at the next place where it splits none of the program's. Never waits for a reader.

        Before :meth:`start` it is held back: no thread may run while the program is started by a fork.
        """
        self._output.say(text)

    def drain(self, grace: float) -> bool:
        """Read the program's output to its end; False if something still holds it open after the grace."""
        self._output.hurry()
        return self._ended.wait(grace)

    def close(self, grace: float) -> None:
        """Write what is pending and stop; a reader that takes nothing for that many seconds gets no more."""
        self._closing = True
        self._output.close(grace)

    def _run(self) -> None:
        while not self._closing:
            chunk = os.read(self._source, _CHUNK)
            if not chunk:
                self._take(self._lines.finish())
                self._ended.set()
                return
            self._output.put(chunk)
            self._take(self._lines.feed(chunk))
            self._output.wait_for_room()

    def _take(self, lines: List[bytes]) -> None:
        for line in lines:
            try:
                self._on_line(line)
            except Exception as error:  # A reader that dies would block the program on a full pipe.
                self.say(f"internal error at a message: {type(error).__name__}: {error}")
