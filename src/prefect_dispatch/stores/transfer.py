"""Transfer: how far a save has come on its way to an object store or from it."""

from __future__ import annotations

import enum
from typing import Callable

from prefect_dispatch.format.dataclass import dataclass


class Direction(enum.Enum):
    """Which way."""

    UPLOAD = "upload"
    """From this machine to the store."""
    DOWNLOAD = "download"
    """From the store to this machine."""


@dataclass(frozen=True)
class Transfer:
    """A save on its way.

    Args:
        direction: which way.
        path: the save, relative to the lineage's root.
        done: how many of its bytes have arrived.
        total: how many there are.
    """

    direction: Direction
    path: str
    done: int
    total: int


Report = Callable[[Transfer], None]
"""Is told about once a second how far a transfer is, in the thread that waits for it."""


def tell_nobody(transfer: Transfer) -> None:
    """Nobody is interested."""
