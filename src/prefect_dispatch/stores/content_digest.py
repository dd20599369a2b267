"""Digest of what lies at a path: a file's bytes, or all that a folder holds."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time

from prefect_dispatch.errors import IdentityUnknown
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

MOST_ENTRIES = 200_000
"""Names that a folder may hold, with all in it: some seconds to look at each of them twice."""
MAX_DEPTH = 64
"""How deep folders may lie in it, as in a save."""
TRIES = 3
PAUSE_SECONDS = 0.2
"""Between two tries to read what changed meanwhile: whoever writes it may be done by then."""
_CHUNK_BYTES = 1024 * 1024
# A FIFO that nobody writes would else keep the opening waiting for ever.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_INSIDE = _READ | os.O_NOFOLLOW
_GONE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR)

Signature = tuple["int", "int", "int", "int", "int", "int"]


class _Changed(Exception):
    """Something was not the same before and after it was read."""


def digest_of_path(path: str) -> str:
    """The digest of a file's bytes, ``sha256:…``, or of a folder's content, ``folder:…``.

    A folder's covers each name in it, whether a file is executable, the bytes of files and the targets of links, which
    are not followed; neither times nor owners. A link at the path itself is followed.

    Raises:
        IdentityUnknown: it is not there, cannot be read, holds what has no content, such as a FIFO, is too large a
            folder, or changes whenever it is read.
    """
    for remaining in reversed(range(TRIES)):
        try:
            return _digest(os.fsencode(path))
        except _Changed as change:
            if not remaining:
                raise IdentityUnknown(f"{shorten(path)} changes while it is read: {change}") from None
            time.sleep(PAUSE_SECONDS)
        except OSError as error:
            raise IdentityUnknown(f"{shorten(path)} cannot be read: {error.strerror}") from None
    raise AssertionError


def feed_file(descriptor: int, size: int, take: Callable[[memoryview], None]) -> int:
    """Feed all bytes of a file that was just opened to a digest; returns how many it was.

    Args:
        descriptor: the file.
        size: how many it should be.
        take: the digest's update.
    """
    buffer = bytearray(min(size + 1, _CHUNK_BYTES))
    view = memoryview(buffer)
    total = 0
    while True:
        count = os.readv(descriptor, [buffer])
        if not count:
            return total
        take(view[:count])
        total += count


def signature_of(status: os.stat_result) -> Signature:
    """By what a change of a file is noticed, a replacement and a change of its mode included."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _digest(path: bytes) -> str:
    _check_kind(path, os.stat(path))  # To open a device may be to set it off.
    descriptor = os.open(path, _READ)
    try:
        before = os.fstat(descriptor)
        _check_kind(path, before)
        if stat.S_ISDIR(before.st_mode):
            return f"folder:{_Folder().digest(descriptor).hex()}"
        digest = hashlib.sha256()
        size = feed_file(descriptor, before.st_size, digest.update)
        here = signature_of(before)
        if size != before.st_size or here != signature_of(os.fstat(descriptor)):
            raise _Changed("it was written to")
        if here != signature_of(os.stat(path)):
            raise _Changed("it was replaced")
        return f"sha256:{digest.hexdigest()}"
    finally:
        os.close(descriptor)


def _check_kind(path: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise IdentityUnknown(f"{_shown(path)} is neither a file nor a folder, and has no content")


class _Folder:
    """One reading of a folder: everything is looked at twice, with the reading of all bytes in between."""

    def __init__(self) -> None:
        self._seen: Dict[bytes, Signature] = {}

    def digest(self, descriptor: int) -> bytes:
        """The digest of an open folder.

        Raises:
            _Changed: it was not the same before and after.
        """
        digest = self._read(descriptor, b"", 0)
        self._look_again(descriptor, b"")
        return digest

    def _read(self, folder: int, place: bytes, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise IdentityUnknown(f"folder {_shown(place)} lies more than {MAX_DEPTH} folders deep; name one in it")
        self._seen[place] = signature_of(os.fstat(folder))
        names = _names(folder)
        if len(self._seen) + len(names) > MOST_ENTRIES:
            raise IdentityUnknown(f"it holds more than {MOST_ENTRIES:,} names; name a file that lists them instead")
        digest = hashlib.sha256(b"folder\0")
        for name in names:
            inner = place + b"/" + name if place else name
            kind, content = self._read_entry(folder, name, inner, depth)
            digest.update(kind + len(name).to_bytes(4, "big") + name + content)
        return digest.digest()

    def _read_entry(self, folder: int, name: bytes, place: bytes, depth: int) -> Tuple[bytes, bytes]:
        """The letter of its kind, and the digest of its content."""
        try:
            status = os.lstat(name, dir_fd=folder)
            if stat.S_ISLNK(status.st_mode):
                self._seen[place] = signature_of(status)
                return b"l", hashlib.sha256(os.readlink(name, dir_fd=folder)).digest()
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise IdentityUnknown(f"{_shown(place)} in it is no file, folder or link, and has no content")
            descriptor = os.open(name, _INSIDE, dir_fd=folder)
        except OSError as error:
            raise _fault_of(error, place) from None
        try:
            opened = os.fstat(descriptor)
            if signature_of(opened)[:3] != signature_of(status)[:3]:
                raise _Changed(f"{_shown(place)} was replaced")
            if stat.S_ISDIR(opened.st_mode):
                return b"d", self._read(descriptor, place, depth + 1)
            self._seen[place] = signature_of(opened)
            digest = hashlib.sha256()
            if feed_file(descriptor, opened.st_size, digest.update) != opened.st_size:
                raise _Changed(f"{_shown(place)} was written to")
            return b"x" if opened.st_mode & stat.S_IXUSR else b"f", digest.digest()
        except OSError as error:
            raise _fault_of(error, place) from None
        finally:
            os.close(descriptor)

    def _look_again(self, folder: int, place: bytes) -> None:
        """Whether all is as it was read. What came or went has changed the time of its folder."""
        if self._seen[place] != signature_of(os.fstat(folder)):
            raise _Changed(f"{_shown(place) if place else 'it'} was written to")
        for name in _names(folder):
            inner = place + b"/" + name if place else name
            before = self._seen.get(inner)
            if before is None:
                raise _Changed(f"{_shown(inner)} came meanwhile")
            try:
                if not stat.S_ISDIR(before[2]):
                    if before != signature_of(os.lstat(name, dir_fd=folder)):
                        raise _Changed(f"{_shown(inner)} was written to")
                    continue
                descriptor = os.open(name, _INSIDE | os.O_DIRECTORY, dir_fd=folder)
            except OSError as error:
                raise _fault_of(error, inner) from None
            try:
                self._look_again(descriptor, inner)
            finally:
                os.close(descriptor)


def _names(folder: int) -> List[bytes]:
    """The names of an open folder in the order of their bytes, whatever order it has them in."""
    return sorted(os.fsencode(name) for name in os.listdir(folder))


def _fault_of(error: OSError, place: bytes) -> Exception:
    """What was listed and is gone, or is a link now, has changed; what else fails cannot be told."""
    if error.errno in _GONE:
        return _Changed(f"{_shown(place)} went away")
    return IdentityUnknown(f"{_shown(place)} in it cannot be read: {error.strerror}")


def _shown(place: bytes) -> str:
    return shorten(os.fsdecode(place))
