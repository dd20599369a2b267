"""The store on a POSIX file system: a root folder."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import islice

from prefect_dispatch.errors import Absent, StoreError, StoreUnreachable
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import (
    check_names,
    describe,
    make_folders,
    open_below,
    open_folder,
    open_root,
    split_path,
    told_as_store_errors,
)
from prefect_dispatch.stores.layout import RECORD, STANDING, TEMPORARY
from prefect_dispatch.stores.posix_ledger import PosixLedger
from prefect_dispatch.stores.removal import newest_change, remove_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Set, Tuple, Union

SWEEP_AGE_SECONDS = 24 * 3600.0
"""Temporary files that nothing has touched for so long are their dead writers' leavings."""
SWEEP_SECONDS = 5.0
"""How long a probe sweeps at most: a job that was killed in a large copy, or means ill, must not hold up what follows.
The next probe goes on."""
MOST_SWEPT = 10_000
"""How many entries of ``tmp/`` one probe looks at."""


class PosixStore:
    """A store at a folder; see :class:`~prefect_dispatch.stores.port.Store` for the contract.

    Args:
        root: the folder; made on first use. It may be reached over symbolic links; below it none is followed.
        now: the clock that the age of temporary files is measured by, in seconds since 1970; the file system's own
            where left out, since a host whose clock is ahead must not take for old what somebody is writing.
    """

    def __init__(self, root: Union[str, "os.PathLike[str]"], now: Optional[Callable[[], float]] = None) -> None:
        self._root = os.path.abspath(root)
        self._now = now
        self._kept: Set[str] = set()

    @property
    def location(self) -> str:
        """The root as an absolute path."""
        return self._root

    def local(self, path: str) -> str:
        """The same path below the root."""
        return f"{self._root}/{path}"

    def probe(self, make: bool = True) -> None:
        """Make the root if it may, try exclusive creation and links in ``tmp/``, and sweep what is old there."""
        if sys.getfilesystemencoding().lower().replace("-", "") != "utf8":
            raise StoreUnreachable(
                f"store {self.location}: file names are read as {sys.getfilesystemencoding()}; set PYTHONUTF8=1"
            )
        try:
            with open_root(self._root, make) as root, open_folder(root, [TEMPORARY], make=True) as workshop:
                made_at = self._try_exclusive_creation(workshop)
                self._sweep(workshop, made_at if self._now is None else self._now())
        except OSError as error:
            raise StoreUnreachable(f"store {self.location} cannot be written: {describe(error)}") from error
        except StoreError as error:
            raise StoreUnreachable(f"store {self.location} cannot be written: {error}") from error

    def ledger(self, folder: str) -> PosixLedger:
        """The ledger at a folder."""
        return PosixLedger(self._root, folder, self._kept, folder == RECORD or folder in STANDING)

    def folders(self, path: str) -> List[str]:
        """List the folders in a folder."""
        what, parts = os.path.join(self._root, path), split_path(path)
        try:
            with told_as_store_errors(what), open_below(self._root, parts) as folder, os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except Absent:
            return []
        check_names(names, what)
        return sorted(names)

    def make_folder(self, path: str) -> None:
        """Make a folder durably."""
        what, parts = os.path.join(self._root, path), split_path(path)
        with told_as_store_errors(what), open_root(self._root) as root:
            make_folders(root, parts)
        self._kept.add(path)

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List every file of a save."""
        from prefect_dispatch.stores.posix_saves import list_files

        return list_files(self._root, path)

    def difference(self, path: str, files: Tuple[SavedFile, ...]) -> Optional[str]:
        """Say how a save differs from a list of its files."""
        from prefect_dispatch.stores.posix_saves import find_difference

        return find_difference(self._root, path, files)

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> Tuple[SavedFile, ...]:
        """Make a save durable."""
        from prefect_dispatch.stores.posix_saves import sync_files

        sync_files(self._root, path, files)
        return files

    def copy(self, source: str, target: str, files: Tuple[SavedFile, ...]) -> None:
        """Copy a save."""
        from prefect_dispatch.stores.posix_copy import copy_files

        copy_files(self._root, source, target, files)

    def _try_exclusive_creation(self, workshop: int) -> float:
        """Try it. Returns when that was, by the file system's clock."""
        name = f"{new_nonce()}.probe"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        reach("store.probe-create")
        os.close(os.open(name, flags, 0o666, dir_fd=workshop))
        try:
            reach("store.probe-again")
            try:
                os.close(os.open(name, flags, 0o666, dir_fd=workshop))
            except FileExistsError:
                pass
            else:
                raise StoreUnreachable(
                    f"store {self.location} creates one name twice: it does not keep exclusive creation; "
                    "use another file system"
                )
            reach("store.probe-link")
            os.link(name, f"{name}.link", src_dir_fd=workshop, dst_dir_fd=workshop, follow_symlinks=False)
            os.unlink(f"{name}.link", dir_fd=workshop)
            return os.stat(name, dir_fd=workshop, follow_symlinks=False).st_ctime
        finally:
            os.unlink(name, dir_fd=workshop)

    def _sweep(self, workshop: int, now: float) -> None:
        """Remove what is old. Another sweeper may be at it too, so nothing that is gone already is an error."""
        give_up = time.monotonic() + SWEEP_SECONDS

        def go_on() -> bool:
            return time.monotonic() < give_up

        with os.scandir(workshop) as scan:
            for name in [entry.name for entry in islice(scan, MOST_SWEPT)]:
                if not go_on():
                    return
                with suppress(OSError):
                    if now - newest_change(workshop, name) > SWEEP_AGE_SECONDS:
                        remove_all(workshop, name, go_on)
