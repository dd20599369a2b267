"""A ledger as a folder: a name is a file that is created exclusively, with its whole content or none."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice

from prefect_dispatch.errors import Absent, Exists, RootAbsent, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import (
    check_name,
    check_names,
    open_folder,
    open_root,
    split_path,
    sync_file,
    sync_folder,
    told_as_store_errors,
)
from prefect_dispatch.stores.layout import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Set

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_REGULAR = "is not a regular file; find out who made it, then move it away"


class PosixLedger:
    """One folder below a root; see :class:`~prefect_dispatch.stores.port.Ledger` for the contract.

    Args:
        root: the store's root.
        folder: this ledger's folder, relative to it.
        kept: the folders whose way down from the root this process has made durable; shared by the store's ledgers.
        standing: whether the folder was made with what is in the root, so that it is away where it is not there. Any
            other is made by the first name.
    """

    def __init__(self, root: str, folder: str, kept: Set[str], standing: bool = False) -> None:
        self._root = root
        self._folder = folder
        self._parts = split_path(folder)
        self._where = os.path.join(root, *self._parts)
        self._ways = ["/".join(self._parts[: length + 1]) for length in range(len(self._parts))]
        self._kept = kept
        self._standing = standing

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a name exclusively and durably."""
        what = self._place(name)
        kept = self._count_kept()
        with told_as_store_errors(what), open_root(self._root) as root, self._open(root, kept) as folder:
            try:
                if content:
                    _create_whole(root, folder, name, content, what)
                else:
                    _create_empty(root, folder, name, what)
            except FileExistsError:
                # Whoever made it may have died before making it durable, and our caller takes it as being there.
                sync_folder(folder, what)
                if not content:
                    sync_folder(root, self._root)
                if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise StoreError(f"{what} {_NOT_REGULAR}") from None
                raise Exists(f"{what} is there already") from None
        self._kept.update(self._ways)

    def read(self, name: str, most: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a name's content, up to one byte more than it may have."""
        what = self._place(name)
        with told_as_store_errors(what), self._open_below() as folder:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise StoreError(f"{what} {_NOT_REGULAR}")
                return file.read(most + 1)

    def names(self, after: str = "", most: Optional[int] = None) -> List[str]:
        """List the regular files."""
        # Code points and UTF-8 bytes sort alike.
        names = sorted(self._list(regular=True, most=most))
        return [name for name in names if name > after] if after else names

    def unordered_names(self) -> List[str]:
        """List the regular files as the file system has them."""
        return self._list(regular=True)

    def strangers(self) -> List[str]:
        """List what is no regular file."""
        return sorted(self._list(regular=False))

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        what = self._place(name)
        try:
            with told_as_store_errors(what), self._open_below() as folder:
                reach("store.remove-name")
                os.unlink(name, dir_fd=folder)
                sync_folder(folder, what)
        except Absent:
            pass

    def _list(self, regular: bool, most: Optional[int] = None) -> List[str]:
        where = self._where
        try:
            with told_as_store_errors(where), self._open_below() as folder, os.scandir(folder) as scan:
                entries = scan if most is None else islice(scan, most + 1)
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False) is regular]
                if most is not None and (len(names) > most or next(scan, None) is not None):
                    raise StoreError(f"{where} holds more than {most:,} entries; find out who makes them")
        except Absent:
            return []
        check_names(names, where)
        return names

    @contextmanager
    def _open_below(self) -> Iterator[int]:
        """Open the folder, which should be there.

        Raises:
            RootAbsent: the root is away, or a standing folder is.
        """
        with open_root(self._root) as root, self._open(root, None) as folder:
            yield folder

    @contextmanager
    def _open(self, root: int, kept: Optional[int]) -> Iterator[int]:
        """Open the folder below the root; with a number of kept parts, make it first where it may be made."""
        # Only of its opening: what is missing in the folder is another thing.
        with ExitStack() as stack:
            try:
                opened = open_folder(root, self._parts, kept is not None and not self._standing, kept)
                folder = stack.enter_context(opened)
            except FileNotFoundError:
                if not self._standing:
                    raise
                raise RootAbsent(
                    f"{self._where} is not there, and it was made with what lies beside it; bring it back (was it "
                    "moved away?)"
                ) from None
            yield folder

    def _count_kept(self) -> int:
        """How many parts of the way down are durable. Where a folder is, all that are above it are."""
        kept = len(self._ways)
        while kept and self._ways[kept - 1] not in self._kept:
            kept -= 1
        return kept

    def _place(self, name: str) -> str:
        return f"{self._where}/{check_name(name)}"


def _create_empty(root: int, folder: int, name: str, what: str) -> None:
    reach("store.create-name")
    os.close(os.open(name, _CREATE, 0o666, dir_fd=folder))
    sync_folder(folder, what)
    sync_folder(root, what)


def _create_whole(root: int, folder: int, name: str, content: bytes, what: str) -> None:
    """Write to a file of this writer's own, then give it the final name, which fails where that is taken."""
    temporary = f"{new_nonce()}.new"
    with open_folder(root, [TEMPORARY], make=True) as workshop:
        reach("store.write-document")
        descriptor = os.open(temporary, _CREATE, 0o666, dir_fd=workshop)
        try:
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(descriptor, view) :]
                sync_file(descriptor, what)
                reach("store.link-document")
                os.link(temporary, name, src_dir_fd=workshop, dst_dir_fd=folder, follow_symlinks=False)
                sync_folder(folder, what)
            finally:
                os.close(descriptor)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=workshop)
