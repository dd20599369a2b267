"""What races share: places on real file systems, and how many race there how often."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.plain_opening import plain_opening
from support.full_form import FULL
from support.races.places import LINEAGE, open_record
from support.races.racers import Racers

IN_MEMORY = Path("/dev/shm")


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
    root.prepare("record-1", LINEAGE)
    return root


@pytest.fixture
def record(place) -> Record:
    """A record that was opened."""
    PosixStore(place / "records").probe()
    record = open_record(str(place / "records"))
    record.id()
    record.append(plain_opening())
    return record
