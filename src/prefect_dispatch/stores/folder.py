"""Folders on a POSIX file system, opened part by part so that no symbolic link leads out of the root."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from prefect_dispatch.errors import Absent, NotDurable, RootAbsent, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import MAX_NAME_BYTES
from prefect_dispatch.stores.layout import FORMAT_DOCUMENT, HOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional, Sequence

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WAYS_OUT = {
    errno.ENOSPC: "free space there, then try again",
    errno.EDQUOT: "free space there or raise the quota, then try again",
    errno.EACCES: "give this user access",
    errno.EPERM: "give this user access",
    errno.EROFS: "mount it for writing",
    errno.EIO: "look at the disk and the kernel's log",
    errno.ESTALE: "mount it again",
    errno.ELOOP: "put the real file or folder in the place of the symbolic link",
    errno.EEXIST: "move the file away",
    errno.ENOTDIR: "put a real folder in the place of the symbolic link or file",
    errno.EISDIR: "move the folder away",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: "raise the limit of open files",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
}


class told_as_store_errors:
    """Turn an operating system's error into a StoreError that names the thing and the way out.

    A class, since a generator costs more, and this stands around each publication.

    Raises:
        Absent: for ENOENT.
        StoreError: for every other.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: Optional[BaseException], traceback: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise Absent(f"{self._what} is not there") from None
        if isinstance(error, OSError):
            raise StoreError(f"{self._what}: {describe(error)}") from error


def describe(error: OSError) -> str:
    """An operating system's error in words, with the way out."""
    text = error.strerror or str(error)
    way_out = _WAYS_OUT.get(error.errno or 0)
    return f"{text}; {way_out}" if way_out else text


def split_path(path: str) -> Sequence[str]:
    """Split a path inside the root into its parts; the empty path is the root.

    Raises:
        StoreError: it could leave the root.
    """
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"path {path!r} is not relative and normalised; give it without '.', '..' or '//'")
    for part in parts:
        check_name(part)
    return parts


def check_name(name: str) -> str:
    """Return a name if a file can have it in every store.

    Raises:
        StoreError: it cannot.
    """
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise StoreError(f"name {name!r} is not UTF-8; use another") from None
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StoreError(f"name {name!r} cannot be a file's; use one without '/' and NUL")
    if size > MAX_NAME_BYTES:
        raise StoreError(f"name {name!r} has {size} bytes and a file's has at most {MAX_NAME_BYTES}; shorten it")
    return name


@contextmanager
def open_root(root: str, make: bool = False) -> Iterator[int]:
    """Open the root itself, which may be reached over symbolic links; with ``make``, create it as ``mkdir -p`` does.

    Only a probe makes one. A root that is not there is not an empty one: nothing in it is absent, it cannot be told.

    Raises:
        RootAbsent: it is not there.
    """
    if make:
        make_root(root)
    try:
        descriptor = os.open(root, _OPEN_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        raise RootAbsent(f"store {root} is not there; is its file system mounted?") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_root(root: str) -> None:
    """Create the root and the folders above it that are missing, each durable in its parent."""
    if os.path.isdir(root):
        return
    above = os.path.dirname(root)
    if above != root:
        make_root(above)
    try:
        reach("store.make-root")
        os.mkdir(root)
    except FileExistsError:
        if not os.path.isdir(root):
            raise
    with open_root(above) as parent:
        sync_folder(parent, above)


@contextmanager
def open_folder(root: int, parts: Sequence[str], make: bool = False, kept: Optional[int] = None) -> Iterator[int]:
    """Open a folder below an open one.

    Args:
        root: the descriptor to start at.
        parts: the names on the way, none of which may be a symbolic link.
        make: create what is missing.
        kept: how many of the parts this process has made durable already; the rest of the way is made durable too,
            also where another process has only just made it. None where only what is made here has to be.

    Raises:
        RootAbsent: the first part was made with a lineage's root, and was moved away.
        NotDurable: the disk refused to keep what is on the way; only at the end, so that what the caller does there
            is tried all the same: the note that a save is barred must come into being on a failing disk.
        OSError: ENOENT where a part is missing; ELOOP or ENOTDIR where one is no folder.
    """
    descriptor = root
    refused: Optional[NotDurable] = None
    try:
        for position, part in enumerate(parts):
            made = False
            try:
                below = _open_part(part, descriptor)
            except FileNotFoundError:
                if position == 0:
                    _require_home(part, root)
                if not make:
                    raise
                made = _make(part, descriptor)
                below = _open_part(part, descriptor)
            try:
                if made or (kept is not None and position >= kept):
                    sync_folder(descriptor, part)
            except NotDurable as error:
                refused = refused or error
            if descriptor != root:
                os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        if descriptor != root:
            os.close(descriptor)
        if refused is not None:
            raise refused


def make_folders(root: int, parts: Sequence[str]) -> None:
    """Make a folder below an open one, and make the way down to it durable."""
    with open_folder(root, parts, make=True, kept=0):
        pass


@contextmanager
def open_below(root: str, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder that should be there below a root; errors as for :func:`open_root` and :func:`open_folder`."""
    with open_root(root) as descriptor, open_folder(descriptor, parts) as folder:
        yield folder


def sync_folder(descriptor: int, what: str) -> None:
    """Make a folder's names durable. Mounts that cannot say so (EINVAL) are taken as they are.

    Raises:
        NotDurable: the disk refused.
    """
    reach("store.sync-folder")
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise NotDurable(f"{what}: fsync of its folder failed: {describe(error)}") from error


def sync_file(descriptor: int, what: str) -> None:
    """Make a file's content durable.

    Raises:
        NotDurable: the disk refused.
    """
    reach("store.sync-file")
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise NotDurable(f"{what}: fsync failed: {describe(error)}") from error


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse names that are not UTF-8.

    Raises:
        StoreError: one is not; the text names it.
    """
    try:
        "\0".join(names).encode("utf-8")
    except UnicodeEncodeError:
        for name in names:
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                raise StoreError(
                    f"{where} holds the name {os.fsencode(name)!r}, which is not UTF-8; rename it"
                ) from None


def _require_home(part: str, root: int) -> None:
    """Find out that a folder which is not there is not one that was made with a lineage's root.

    Raises:
        RootAbsent: it is: what lies in it is away, and neither gone nor rotated.
    """
    if part not in HOMES:
        return
    try:
        os.stat(FORMAT_DOCUMENT, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return
    try:
        where = os.readlink(f"/proc/self/fd/{root}")
    except OSError:
        where = "the lineage's root"
    raise RootAbsent(
        f"{where}/{part} is not there, and it was made with what lies beside it; bring it back (was it moved away?)"
    )


def _open_part(part: str, parent: int) -> int:
    return os.open(part, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=parent)


def _make(part: str, parent: int) -> bool:
    try:
        reach("store.make-folder")
        os.mkdir(part, dir_fd=parent)
    except FileExistsError:
        return False
    return True
