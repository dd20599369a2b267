"""What races share: places on real file systems, and the program whose processes race there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.plain_opening import plain_opening
from support.full_form import FULL

IN_MEMORY = Path("/dev/shm")


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
        program = Path(__file__).with_name("race_program.py")
        self._program = subprocess.Popen(
            [sys.executable, "-W", "error", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


@pytest.fixture(scope="session")
def racers() -> Iterator[Racers]:
    racers = Racers()
    yield racers
    racers.close()


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path) -> Iterator[Path]:
    """A folder on the file system of temporary folders, and one on that of shared memory."""
    if request.param == "disk":
        yield tmp_path
        return
    if not os.access(IN_MEMORY, os.W_OK) or IN_MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{IN_MEMORY} is not there, or nothing else than the disk")
    folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def processes() -> int:
    return 32 if FULL else 8


@pytest.fixture
def rounds() -> int:
    return 200 if FULL else 5


@pytest.fixture
def root(place) -> LineageRoot:
    root = LineageRoot(PosixStore(place / "root"))
    root.prepare("record-1", "digits")
    return root


@pytest.fixture
def record(place) -> Record:
    """A record that was opened."""
    index = PosixStore(place / "records")
    index.probe()
    record = Record(PosixStore(place / "records" / "digits"), index.ledger(".dispatch/open"), "digits", SystemClock())
    record.id()
    record.append(plain_opening())
    return record
