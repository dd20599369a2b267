"""The files of saves on a POSIX file system: listed, compared, made durable; no link followed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager

from prefect_dispatch.errors import Absent, StoreError, Unpublishable
from prefect_dispatch.format.manifest import (
    MAX_DEPTH,
    SHORT_BYTES,
    SavedFile,
    check_link,
    digest_of,
    find_rewriting,
    is_short,
)
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_THAT_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FAULTS_OF_A_SAVE = (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)
_OF_THE_EXECUTION = 2
"""How many parts of a save's path, ``exec/<attempt>``, the helper has made; what follows is the program's."""


def list_files(root: str, path: str) -> Tuple[SavedFile, ...]:
    """See :meth:`~prefect_dispatch.stores.port.Store.files`."""
    what = os.path.join(root, path)
    *parents, name = save_parts(path)
    ours, theirs = parents[:_OF_THE_EXECUTION], parents[_OF_THE_EXECUTION:]
    with told_as_store_errors(what), open_root(root) as base, open_folder(base, ours) as own:
        return _list_save(own, theirs, name, what)


def find_difference(root: str, path: str, files: Sequence[SavedFile]) -> Optional[str]:
    """See :meth:`~prefect_dispatch.stores.port.Store.difference`."""
    what = os.path.join(root, path)
    seen: List[Tuple[SavedFile, int]] = []
    with told_as_store_errors(what), open_root(root) as base:
        for folder_parts, entries in by_folder(path, files).items():
            try:
                with open_folder(base, folder_parts) as folder:
                    for name, file in entries:
                        found = _compare_file(folder, name, file)
                        if isinstance(found, str):
                            return f"{file.path or path} {found}"
                        seen.append((file, found))
            except OSError as error:
                if error.errno not in _NOT_THAT_FILE:
                    raise
                return f"{entries[0][1].path or path} is gone"
    return find_rewriting(seen)


def sync_files(root: str, path: str, files: Sequence[SavedFile]) -> None:
    """See :meth:`~prefect_dispatch.stores.port.Store.sync`."""
    what = os.path.join(root, path)
    folders: Set[Tuple[str, ...]] = {()}
    with told_as_store_errors(what), open_root(root) as base:
        for folder_parts, entries in by_folder(path, files).items():
            folders.update(folder_parts[:depth] for depth in range(len(folder_parts) + 1))
            with told_as_changed(what), open_folder(base, folder_parts) as folder:
                for name, file in entries:
                    if file.link is None:
                        descriptor = open_listed(folder, name, file, what)
                        try:
                            sync_file(descriptor, os.path.join(what, file.path))
                        finally:
                            os.close(descriptor)
        for folder_parts in sorted(folders, key=len, reverse=True):
            with open_folder(base, folder_parts) as folder:
                sync_folder(folder, os.path.join(root, *folder_parts))


@contextmanager
def _told_as_faults_of_the_save(what: str) -> Iterator[None]:
    """Tell what the program put where a save should be apart from what is wrong with the store.

    Raises:
        Unpublishable: a part of the path is a link or no folder, or a name is too long.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FAULTS_OF_A_SAVE:
            raise
        raise Unpublishable(f"save {what} cannot be read: {describe(error)}") from None


@contextmanager
def told_as_changed(what: str) -> Iterator[None]:
    """Take a listed file or folder that is now something else as one that is not there any more.

    Raises:
        Absent: it is something else.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise
        raise Absent(f"{what}: part of it is no regular file or folder any more") from None


def save_parts(path: str) -> Sequence[str]:
    """The parts of a save's path.

    Raises:
        StoreError: it could leave the root, or is the root itself.
    """
    parts = split_path(path)
    if not parts:
        raise StoreError("the root itself is no save; name a file or folder in it")
    return parts


def by_folder(path: str, files: Sequence[SavedFile]) -> Dict[Tuple[str, ...], List[Tuple[str, SavedFile]]]:
    """The files by the folder that holds them, as parts from the root, so that each folder is opened once."""
    folders: Dict[Tuple[str, ...], List[Tuple[str, SavedFile]]] = {}
    for file in files:
        parts = split_path(f"{path}/{file.path}" if file.path else path)
        folders.setdefault(tuple(parts[:-1]), []).append((parts[-1], file))
    return folders


def _list_save(own: int, parents: Sequence[str], name: str, what: str) -> Tuple[SavedFile, ...]:
    with _told_as_faults_of_the_save(what), open_folder(own, parents) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return (_listed(parent, name, "", status),)
        if not stat.S_ISDIR(status.st_mode):
            raise Unpublishable(f"{what} is neither a regular file nor a folder; publish the real file or folder")
        found: List[SavedFile] = []
        with open_folder(parent, [name]) as folder:
            _list_folder(folder, (), what, found)
        return tuple(sorted(found, key=lambda file: file.path))


def _list_folder(folder: int, parts: Tuple[str, ...], what: str, found: List[SavedFile]) -> None:
    if len(parts) > MAX_DEPTH:
        raise Unpublishable(f"{what} has folders more than {MAX_DEPTH} deep; a save must be flatter")
    with os.scandir(folder) as scan:
        entries = list(scan)
    _check_text([entry.name for entry in entries], os.path.join(what, *parts))
    for entry in entries:
        status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        path = "/".join((*parts, entry.name))
        if stat.S_ISREG(status.st_mode):
            found.append(_listed(folder, entry.name, path, status))
        elif stat.S_ISDIR(status.st_mode):
            with open_folder(folder, [entry.name]) as below:
                _list_folder(below, (*parts, entry.name), what, found)
        elif stat.S_ISLNK(status.st_mode):
            link = os.readlink(entry.name, dir_fd=folder)
            _check_text([link], os.path.join(what, path))
            if not check_link(link, len(parts)):
                raise Unpublishable(
                    f"{os.path.join(what, path)} is a symbolic link to {link!r}, which leaves the save; "
                    "put the file itself there"
                )
            found.append(SavedFile(path, status.st_size, status.st_mtime_ns, link))
        else:
            raise Unpublishable(f"{os.path.join(what, path)} is a device, FIFO or socket; keep it out of the save")


def _listed(folder: int, name: str, path: str, status: os.stat_result) -> SavedFile:
    if not is_short(path, status.st_size):
        return SavedFile(path, status.st_size, status.st_mtime_ns)
    descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        # Of the file that is read: another one may have taken the name meanwhile.
        status = os.fstat(descriptor)
        digest = _digest(descriptor, path, status)
    finally:
        os.close(descriptor)
    return SavedFile(path, status.st_size, status.st_mtime_ns, None, digest)


def _digest(descriptor: int, path: str, status: os.stat_result) -> Optional[str]:
    if not stat.S_ISREG(status.st_mode) or not is_short(path, status.st_size):
        return None
    return digest_of(os.read(descriptor, SHORT_BYTES))


def _check_text(names: Sequence[str], where: str) -> None:
    try:
        check_names(names, where)
    except StoreError as error:
        raise Unpublishable(str(error)) from None


def _compare_file(folder: int, name: str, file: SavedFile) -> Union[str, int]:
    """How a file differs from its entry, in words; where it does not, the modification time that it has now."""
    try:
        if file.link is not None:
            try:
                there = os.readlink(name, dir_fd=folder)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return "is no symbolic link any more"
            return file.mtime_ns if there == file.link else f"links to {there!r}, not to {file.link!r}"
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno not in (*_NOT_THAT_FILE, errno.ENXIO):
            raise
        return "is gone" if error.errno == errno.ENOENT else "is no regular file any more"
    try:
        status = os.fstat(descriptor)
        digest = _digest(descriptor, file.path, status) if file.digest is not None else None
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file any more"
    if status.st_size != file.size:
        return f"has {status.st_size} bytes, not {file.size}"
    return status.st_mtime_ns if digest == file.digest else "has other bytes than when it was published"


def open_listed(folder: int, name: str, file: SavedFile, what: str) -> int:
    """Open a file of a save for reading.

    Raises:
        Absent: it is no regular file, or has another size than its entry.
    """
    descriptor = os.open(name, _READ, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size == file.size:
        return descriptor
    os.close(descriptor)
    raise Absent(
        f"{what}: {file.path or name} has changed meanwhile; it had {file.size} bytes and has {status.st_size}"
    )
