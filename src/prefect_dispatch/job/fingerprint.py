"""Fingerprint: what a save's files look like from outside, by which a change of them is noticed."""

from __future__ import annotations

import os
import stat

from prefect_dispatch.job.tree import Entry, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

Fingerprint = tuple["tuple[str, int, int, int]", ...]
"""Each file's name, size, modification time in nanoseconds since 1970, and inode, ordered."""


def fingerprint_of(place: str) -> Fingerprint:
    """The fingerprint of a save; empty while files come and go, and for a folder without any.

    Args:
        place: the save, absolute.

    Raises:
        OSError: it cannot be read.
    """
    files = [(name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in _statuses(place)]
    return tuple(sorted(files))


def last_change(fingerprint: Fingerprint) -> int:
    """When the file that was written last was, in nanoseconds since 1970."""
    return max(mtime_ns for _, _, mtime_ns, _ in fingerprint)


def has_other_names(place: str) -> bool:
    """Whether a file of a save is a hard link, so that somebody may write into it by its other name.

    Args:
        place: the save, absolute.

    Raises:
        OSError: it cannot be read.
    """
    return any(stat.S_ISREG(status.st_mode) and status.st_nlink > 1 for _, status in _statuses(place))


def _statuses(place: str) -> List[Tuple[str, os.stat_result]]:
    found: List[Tuple[str, os.stat_result]] = []

    def take(path: str, entries: List[Entry]) -> List[str]:
        for entry in entries:
            if not entry.is_folder:
                inner = os.path.join(path, entry.name)
                found.append((inner, os.lstat(os.path.join(place, inner))))
        return [entry.name for entry in entries if entry.is_folder]

    try:
        status = os.lstat(place)
        if not stat.S_ISDIR(status.st_mode):
            return [("", status)]
        walk(place, take)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found
