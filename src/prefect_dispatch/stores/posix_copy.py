"""Copies of saves on a POSIX file system: whole or absent, and never of two times."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import describe, open_folder, open_root, split_path
from prefect_dispatch.stores.layout import TEMPORARY
from prefect_dispatch.stores.posix_saves import by_folder, open_listed, save_parts, told_as_changed
from prefect_dispatch.stores.removal import remove_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Sequence

_FICLONE = 0x40049409  # from linux/fs.h; Python's fcntl names it only from 3.12 on
_BLOCK = 1024 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def copy_files(root: str, source: str, target: str, files: Sequence[SavedFile]) -> None:
    """See :meth:`~prefect_dispatch.stores.port.Store.copy`."""
    what = f"copy of {os.path.join(root, source)} to {os.path.join(root, target)}"
    *parents, name = save_parts(target)
    temporary = f"{new_nonce()}.copy"
    single = [file.path for file in files] == [""]
    times: Dict[SavedFile, int] = {}
    with _told_as_failures(what), open_root(root) as base, open_folder(base, parents, make=True) as shelf:
        if _is_there(name, shelf):
            raise Exists(f"{os.path.join(root, target)} is there already")
        with open_folder(base, [TEMPORARY], make=True) as workshop:
            try:
                if not single:
                    reach("store.copy-begin")
                    os.mkdir(temporary, dir_fd=workshop)
                for folder_parts, entries in by_folder(source, files).items():
                    below = () if single else (temporary, *folder_parts[len(split_path(source)) :])
                    copy = open_folder(workshop, below, make=True)
                    with copy as there, _told_as_gone(what), open_folder(base, folder_parts) as here:
                        for entry, file in entries:
                            times[file] = _copy_file(here, entry, there, temporary if single else entry, file, what)
                _check_untouched(base, source, times, what)
                _put_in_place(temporary, workshop, name, shelf, single, os.path.join(root, target))
            finally:
                remove_all(workshop, temporary)


@contextmanager
def _told_as_failures(what: str) -> Iterator[None]:
    """Turn an operating system's error into a StoreError, one about the copy itself also where it says "not there".

    Only what the source lacks is absent. That something of ours went away in ``tmp/`` says nothing about the source.

    Raises:
        StoreError: for every error.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {describe(error)}") from error


@contextmanager
def _told_as_gone(what: str) -> Iterator[None]:
    """Take a file or folder of the source that is not there, or no such thing any more, as absent.

    Raises:
        Absent: it is.
    """
    try:
        with told_as_changed(what):
            yield
    except FileNotFoundError:
        raise Absent(f"{what}: part of the source is not there") from None


def _copy_file(origin: int, name: str, copy: int, new_name: str, file: SavedFile, what: str) -> int:
    """Copy one file; returns the modification time that it had before."""
    if file.link is not None:
        if os.readlink(name, dir_fd=origin) != file.link:
            raise Absent(f"{what}: the link {file.path} has changed meanwhile")
        reach("store.copy-link")
        with _told_as_failures(what):
            os.symlink(file.link, new_name, dir_fd=copy)
        return file.mtime_ns
    source = open_listed(origin, name, file, what)
    try:
        status = os.fstat(source)
        target = _create(new_name, copy, what)
        try:
            if not _reflinked(source, target):
                copy_bytes(source, target, file.size + 1)
            if os.fstat(target).st_size != file.size:
                raise Absent(f"{what}: {file.path or name} has changed meanwhile")
            os.fchmod(target, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
        return status.st_mtime_ns
    finally:
        os.close(source)


def _create(name: str, folder: int, what: str) -> int:
    with _told_as_failures(what):
        reach("store.copy-file")
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)


def _check_untouched(base: int, source: str, times: Dict[SavedFile, int], what: str) -> None:
    """Refuse a copy whose source was written to meanwhile. A file that is gone by now was copied whole before.

    Raises:
        Absent: a file has another modification time than when it was copied.
    """
    for folder_parts, entries in by_folder(source, list(times)).items():
        with suppress(FileNotFoundError, NotADirectoryError), open_folder(base, folder_parts) as origin:
            for name, file in entries:
                with suppress(FileNotFoundError):
                    now = os.stat(name, dir_fd=origin, follow_symlinks=False).st_mtime_ns
                    if file.link is None and now != times[file]:
                        raise Absent(f"{what}: {file.path or name} was written to meanwhile")


def _reflinked(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return False
    return True


def copy_bytes(source: int, target: int, most: int) -> None:
    """Copy no more than that: who appends as fast as we read must not keep us reading."""
    while most > 0:
        block = memoryview(os.read(source, min(_BLOCK, most)))
        if not block:
            return
        most -= len(block)
        while block:
            block = block[os.write(target, block) :]


def _put_in_place(temporary: str, workshop: int, name: str, shelf: int, single: bool, target: str) -> None:
    try:
        if single:
            reach("store.place-file")
            os.link(temporary, name, src_dir_fd=workshop, dst_dir_fd=shelf, follow_symlinks=False)
        else:
            reach("store.place-folder")
            # A folder that is renamed replaces an empty one at most; both are this save then.
            os.rename(temporary, name, src_dir_fd=workshop, dst_dir_fd=shelf)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise Exists(f"{target} is there already") from None
        raise StoreError(f"{target}: {describe(error)}") from error


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
