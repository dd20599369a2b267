"""The log of a trial: what its processes say that they did, in one order, outside of what the designs write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Log:
    """Lines of JSON, each appended by one write, so that those of several processes stay whole and in order.

    Args:
        place: the file.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, kind: str, **fields: Any) -> None:
        """Append an entry."""
        os.write(self._descriptor, json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def entries(self) -> list[dict[str, Any]]:
        """All entries so far."""
        return [json.loads(line) for line in self._place.read_bytes().splitlines()]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
