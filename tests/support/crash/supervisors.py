"""Processes that carry out activations of supervisors, which are started once."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.environment import environment_without

CHILD = Path(__file__).with_name("child.py")
SIDE_BY_SIDE = 3


class Supervisors:
    """Processes that carry out activations, each in a fork of its own; as many at once as there are.

    Args:
        number: how many.
        prefix: a command that starts them somewhere else, such as in a mount namespace of their own.
    """

    def __init__(self, number: int = SIDE_BY_SIDE, prefix: Sequence[str] = ()) -> None:
        self._idle: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        self.all = [
            subprocess.Popen(
                [*prefix, sys.executable, str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment_without("DISPATCH_"),
            )
            for _ in range(number)
        ]
        for each in self.all:
            self._idle.put(each)

    def activate(self, **asked: Any) -> int:
        """Carry out one activation; returns the wait status of its process."""
        server = self._idle.get()
        try:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())
        finally:
            self._idle.put(server)

    def close(self) -> None:
        for each in self.all:
            each.communicate(timeout=60)
