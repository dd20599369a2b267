"""What writers tell readers: which of their calls have returned."""

from __future__ import annotations

import os


class Announcements:
    """A file that writers append lines to, each whole, and that readers read on."""

    def __init__(self, place: str) -> None:
        self._descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._seen = 0
        self._lines: list[str] = []

    def tell(self, line: str) -> None:
        os.write(self._descriptor, line.encode() + b"\n")

    def read(self, kind: str) -> set[str]:
        """All lines of a kind so far, without it."""
        data = b""
        while block := os.pread(self._descriptor, 1 << 20, self._seen + len(data)):
            data += block
        whole = data[: data.rfind(b"\n") + 1]
        self._seen += len(whole)
        self._lines += whole.decode().splitlines()
        return {line.removeprefix(f"{kind} ") for line in self._lines if line.startswith(f"{kind} ")}
