"""The files of saves on a POSIX file system: listed, compared, made durable, copied; no link followed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import (
    check_names,
    describe,
    open_folder,
    open_root,
    split_path,
    sync_file,
    sync_folder,
    told_as_store_errors,
)
from prefect_dispatch.stores.layout import TEMPORARY

MAX_DEPTH = 64
"""Folders within folders of one save; each holds one open file while it is listed."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FICLONE = 0x40049409  # from linux/fs.h; Python's fcntl names it only from 3.12 on
_BLOCK = 1024 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_NOT_THAT_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def list_files(root: Path, path: str) -> Tuple[SavedFile, ...]:
    """See :meth:`~prefect_dispatch.stores.port.Store.files`."""
    what = os.path.join(root, path)
    *parents, name = _save_parts(path)
    with told_as_store_errors(what), open_root(root) as base, open_folder(base, parents) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return (SavedFile("", status.st_size, status.st_mtime_ns),)
        if not stat.S_ISDIR(status.st_mode):
            raise StoreError(f"{what} is neither a regular file nor a folder; publish the real file or folder")
        found: List[SavedFile] = []
        with open_folder(parent, [name]) as folder:
            _list_folder(folder, (), what, found)
        return tuple(sorted(found, key=lambda file: file.path))


def find_difference(root: Path, path: str, files: Sequence[SavedFile]) -> Optional[str]:
    """See :meth:`~prefect_dispatch.stores.port.Store.difference`."""
    what = os.path.join(root, path)
    with told_as_store_errors(what), open_root(root) as base:
        for folder_parts, entries in _by_folder(path, files).items():
            try:
                with open_folder(base, folder_parts) as folder:
                    for name, file in entries:
                        difference = _file_difference(folder, name, file)
                        if difference:
                            return f"{file.path or path} {difference}"
            except OSError as error:
                if error.errno not in _NOT_THAT_FILE:
                    raise
                return f"{entries[0][1].path or path} is gone"
    return None


def sync_files(root: Path, path: str, files: Sequence[SavedFile]) -> None:
    """See :meth:`~prefect_dispatch.stores.port.Store.sync`."""
    what = os.path.join(root, path)
    folders: Set[Tuple[str, ...]] = {()}
    with told_as_store_errors(what), open_root(root) as base:
        for folder_parts, entries in _by_folder(path, files).items():
            folders.update(folder_parts[:depth] for depth in range(len(folder_parts) + 1))
            with open_folder(base, folder_parts) as folder:
                for name, file in entries:
                    if file.link is None:
                        descriptor = _open_listed(folder, name, file, what)
                        try:
                            sync_file(descriptor, os.path.join(what, file.path))
                        finally:
                            os.close(descriptor)
        for folder_parts in sorted(folders, key=len, reverse=True):
            with open_folder(base, folder_parts) as folder:
                sync_folder(folder, os.path.join(root, *folder_parts))


def copy_files(root: Path, source: str, target: str, files: Sequence[SavedFile]) -> None:
    """See :meth:`~prefect_dispatch.stores.port.Store.copy`."""
    what = f"copy of {os.path.join(root, source)} to {os.path.join(root, target)}"
    *parents, name = _save_parts(target)
    temporary = f"{new_nonce()}.copy"
    single = [file.path for file in files] == [""]
    with told_as_store_errors(what), open_root(root) as base, open_folder(base, parents, make=True) as shelf:
        if _is_there(name, shelf):
            raise Exists(f"{os.path.join(root, target)} is there already")
        with open_folder(base, [TEMPORARY], make=True) as workshop:
            try:
                if not single:
                    os.mkdir(temporary, dir_fd=workshop)
                for folder_parts, entries in _by_folder(source, files).items():
                    below = () if single else (temporary, *folder_parts[len(split_path(source)) :])
                    with open_folder(base, folder_parts) as origin, open_folder(workshop, below, make=True) as copy:
                        for entry, file in entries:
                            _copy_file(origin, entry, copy, temporary if single else entry, file, what)
                _put_in_place(temporary, workshop, name, shelf, single, os.path.join(root, target))
            finally:
                _remove(root, temporary, workshop)


def _save_parts(path: str) -> Sequence[str]:
    parts = split_path(path)
    if not parts:
        raise StoreError("the root itself is no save; name a file or folder in it")
    return parts


def _by_folder(path: str, files: Sequence[SavedFile]) -> Dict[Tuple[str, ...], List[Tuple[str, SavedFile]]]:
    """The files by the folder that holds them, as parts from the root, so that each folder is opened once."""
    folders: Dict[Tuple[str, ...], List[Tuple[str, SavedFile]]] = {}
    for file in files:
        parts = split_path(f"{path}/{file.path}" if file.path else path)
        folders.setdefault(tuple(parts[:-1]), []).append((parts[-1], file))
    return folders


def _list_folder(folder: int, parts: Tuple[str, ...], what: str, found: List[SavedFile]) -> None:
    if len(parts) > MAX_DEPTH:
        raise StoreError(f"{what} has folders more than {MAX_DEPTH} deep; a save must be flatter")
    with os.scandir(folder) as scan:
        entries = list(scan)
    check_names([entry.name for entry in entries], os.path.join(what, *parts))
    for entry in entries:
        status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        path = "/".join((*parts, entry.name))
        if stat.S_ISREG(status.st_mode):
            found.append(SavedFile(path, status.st_size, status.st_mtime_ns))
        elif stat.S_ISDIR(status.st_mode):
            with open_folder(folder, [entry.name]) as below:
                _list_folder(below, (*parts, entry.name), what, found)
        elif stat.S_ISLNK(status.st_mode):
            link = os.readlink(entry.name, dir_fd=folder)
            _check_link(link, len(parts), os.path.join(what, path))
            found.append(SavedFile(path, status.st_size, status.st_mtime_ns, link))
        else:
            raise StoreError(f"{os.path.join(what, path)} is a device, FIFO or socket; keep it out of the save")


def _check_link(link: str, depth: int, what: str) -> None:
    """Refuse a link that could leave the save.

    Only leading '..' are counted: one behind a name could climb from wherever that name, itself a link, leads.
    """
    check_names([link], what)
    parts = link.split("/")
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if not link or link.startswith("/") or climbs > depth or ".." in parts[climbs:]:
        raise StoreError(f"{what} is a symbolic link to {link!r}, which leaves the save; put the file itself there")


def _file_difference(folder: int, name: str, file: SavedFile) -> Optional[str]:
    try:
        if file.link is not None:
            try:
                there = os.readlink(name, dir_fd=folder)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return "is no symbolic link any more"
            return None if there == file.link else f"links to {there!r}, not to {file.link!r}"
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno not in (*_NOT_THAT_FILE, errno.ENXIO):
            raise
        return "is gone" if error.errno == errno.ENOENT else "is no regular file any more"
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file any more"
    return None if status.st_size == file.size else f"has {status.st_size} bytes, not {file.size}"


def _open_listed(folder: int, name: str, file: SavedFile, what: str) -> int:
    descriptor = os.open(name, _READ, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size == file.size:
        return descriptor
    os.close(descriptor)
    raise Absent(
        f"{what}: {file.path or name} has changed meanwhile; it had {file.size} bytes and has {status.st_size}"
    )


def _copy_file(origin: int, name: str, copy: int, new_name: str, file: SavedFile, what: str) -> None:
    if file.link is not None:
        if os.readlink(name, dir_fd=origin) != file.link:
            raise Absent(f"{what}: the link {file.path} has changed meanwhile")
        os.symlink(file.link, new_name, dir_fd=copy)
        return
    source = _open_listed(origin, name, file, what)
    try:
        status = os.fstat(source)
        target = os.open(new_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=copy)
        try:
            if not _reflinked(source, target):
                _copy_bytes(source, target)
            if os.fstat(target).st_size != file.size:
                raise Absent(f"{what}: {file.path or name} has changed meanwhile")
            os.fchmod(target, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)


def _reflinked(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return False
    return True


def _copy_bytes(source: int, target: int) -> None:
    while True:
        block = memoryview(os.read(source, _BLOCK))
        if not block:
            return
        while block:
            block = block[os.write(target, block) :]


def _put_in_place(temporary: str, workshop: int, name: str, shelf: int, single: bool, target: str) -> None:
    try:
        if single:
            os.link(temporary, name, src_dir_fd=workshop, dst_dir_fd=shelf, follow_symlinks=False)
        else:
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


def _remove(root: Path, temporary: str, workshop: int) -> None:
    with suppress(OSError):
        os.unlink(temporary, dir_fd=workshop)
        return
    shutil.rmtree(os.path.join(root, TEMPORARY, temporary), ignore_errors=True)
