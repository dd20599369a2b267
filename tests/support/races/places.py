"""The root and the record that racers open, each for itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor import places
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.record import Record

Look = Callable[[], Any]
"""What a racer does when the gate opens."""
LINEAGE = "digits"


def open_root(place: str) -> LineageRoot:
    return LineageRoot(PosixStore(Path(place)))


def open_record(place: str) -> Record:
    """The record below a record root."""
    return places.open_record(place, LINEAGE, SystemClock())
