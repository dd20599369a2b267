"""An execution on a root of its own, for rows that need one that has claimed and started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_nonce, new_token
from prefect_dispatch.stores.layout import exec_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


@dataclass(frozen=True)
class Started:
    """An execution that has started.

    Args:
        root: the lineage's root.
        epoch: its epoch.
        attempt: its token.
        folder: where its saves go.
    """

    root: LineageRoot
    epoch: Epoch
    attempt: str
    folder: Path


def start_execution(place: Path, submission: int = 1) -> Started:
    """Prepare a root, claim and start."""
    root = LineageRoot(PosixStore(place))
    root.prepare("")
    epoch, attempt = Epoch(0, submission, 0), attempt_of(new_token(), 0)
    root.claim(epoch, attempt, "", new_nonce())
    root.start(epoch, attempt, {})
    return Started(root, epoch, attempt, place / exec_folder(attempt))


def write_save(folder: Path, files: int, size: int) -> None:
    """Write a save of some files, each of so many bytes."""
    folder.mkdir(parents=True)
    content = b"\xa5" * size
    for number in range(files):
        (folder / f"part-{number:03d}.bin").write_bytes(content)
