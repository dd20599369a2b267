"""Whole files: whether a file of tensors has all its bytes, by what its format says of its length."""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_LONGEST_HEADER = 100_000_000
"""What safetensors itself takes at most (its Rust crate's ``MAX_HEADER_SIZE``)."""


def is_whole_file(place: str) -> bool:
    """Whether a file is as long as its format says, where its name tells of one that does. Unpickles nothing.

    Args:
        place: absolute. A link is not whole: what it leads to is somebody else's.

    Raises:
        OSError: it cannot be read.
    """
    if place.endswith(".safetensors"):
        return _is_whole_safetensors(place)
    if place.endswith((".pt", ".pth", ".bin")):
        return _is_whole_zip(place)
    return True


def read_regular(place: str, limit: int) -> Optional[bytes]:
    """The content of a regular file; None where it is none, or longer than a limit.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        return file.read(limit + 1)


def _is_whole_safetensors(place: str) -> bool:
    """8 bytes that are the length of the header, the header, and as many bytes as its greatest offset says."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return False
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, status.st_size - 8):
            return False
        try:
            header = json.loads(file.read(length))
            offsets = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
            end = max((int(offset[1]) for offset in offsets), default=0)
        except (ValueError, AttributeError, KeyError, IndexError, TypeError, RecursionError):
            return False
        return 8 + length + end == status.st_size


def _is_whole_zip(place: str) -> bool:
    """What ``torch.save`` writes ends with the table of its parts, which says where it begins."""
    import zipfile  # Only saves of such files pay for it.

    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        try:
            with zipfile.ZipFile(file):
                return True
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            return False
