"""The racers, as a test has them race."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.races import program

TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """What came of one racer.

    Attributes:
        ended: ``done``, the name of an error of ours, ``killed``, or ``crashed``.
        value: what it returned, or the error's text.
    """

    ended: str
    value: Any


class Racers:
    """The program of races, started once."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._program = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", program.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def race(self, *writers: dict[str, Any], readers: Any = (), kills: Any = ()) -> tuple[list[Run], list[Run]]:
        """Let writers race, with readers beside them until the last writer has ended; kill some at their moments."""
        assert self._program.stdin is not None and self._program.stdout is not None
        request = {"writers": writers, "readers": list(readers), "kills": list(kills)}
        print(json.dumps(request), file=self._program.stdin, flush=True)
        line = self._program.stdout.readline()
        assert line, "the program of races has died; see its traceback"
        answer = json.loads(line)
        runs = [[Run(**run) for run in answer[side]] for side in ("writers", "readers")]
        crashed = [run for side in runs for run in side if run.ended == "crashed"]
        assert not crashed, "see the traceback"
        return runs[0], runs[1]

    def close(self) -> None:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait(60)
