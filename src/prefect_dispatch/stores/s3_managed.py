"""The managed store: its program writes saves to a workplace on this machine, and a bucket keeps them."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import List, Optional, Tuple

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import describe, open_folder, open_root, split_path
from prefect_dispatch.stores.layout import META, TEMPORARY
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.posix_saves import by_folder, open_listed, save_parts, told_as_changed
from prefect_dispatch.stores.removal import remove_all
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_ledger import S3Ledger
from prefect_dispatch.stores.s3_mover import S3Mover
from prefect_dispatch.stores.transfer import Report, tell_nobody
from prefect_dispatch.stores.workplace import make_workplace


class ManagedStore:
    """A store in a bucket, as one execution has it; see :class:`~prefect_dispatch.stores.port.Store` for the contract.

    Ledgers are in the bucket. What the program writes, snapshots of it and the save that is resumed from lie in the
    workplace. A ``sync`` sends a save to the bucket, a copy to a place among what is resumed from fetches it.

    Args:
        remote: the bucket.
        workplace: the folder on this machine; made when the execution makes its own folder in it.
        report: is told how far a transfer is.
    """

    def __init__(self, remote: S3Store, workplace: str, report: Report = tell_nobody) -> None:
        self.workplace = workplace
        self._remote = remote
        self._local = PosixStore(workplace)
        self._report = report

    @property
    def location(self) -> str:
        """The bucket's root as a URL."""
        return self._remote.location

    def local(self, path: str) -> str:
        """The path in the workplace."""
        return self._local.local(path)

    def probe(self, make: bool = True) -> None:
        """Find out that the bucket keeps what the format needs."""
        self._remote.probe(make)

    def ledger(self, folder: str) -> S3Ledger:
        """The ledger in the bucket."""
        return self._remote.ledger(folder)

    def folders(self, path: str) -> List[str]:
        """List the folders in the bucket."""
        return self._remote.folders(path)

    def make_folder(self, path: str) -> None:
        """Make a folder in the workplace, and the workplace first."""
        make_workplace(self.workplace)
        self._local.make_folder(path)

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List the files of a save in the workplace; what is not there may be a save that the bucket alone has."""
        if os.path.isdir(self.workplace):
            with suppress(Absent):
                return self._local.files(path)
        return self._remote.files(path)

    def difference(self, path: str, files: Tuple[SavedFile, ...]) -> Optional[str]:
        """Say how a save differs: an imported one in the workplace, every other in the bucket."""
        return (self._local if _is_import(path) else self._remote).difference(path, files)

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> Tuple[SavedFile, ...]:
        """Send a save to the bucket. Its copy in the workplace goes, where it is a snapshot of ours."""
        place = self._remote.place
        if _is_snapshot(path) and not os.path.lexists(self.local(path)):
            # A state, which went straight into the bucket, under a number that is nobody else's.
            return self._remote.sync(path, files)
        what = f"save {path}"

        def opens(folder: Tuple[str, ...], name: str, file: SavedFile) -> int:
            try:
                with told_as_changed(what), open_root(self.workplace) as root, open_folder(root, folder) as parent:
                    return open_listed(parent, name, file, what)
            except FileNotFoundError:
                raise Absent(f"{file.path or path} is gone") from None
            except OSError as error:
                raise StoreError(f"{what}: {describe(error)}") from error

        sources = [
            (file, place.key("/".join((*folder, name))), lambda entry=(folder, name, file): opens(*entry))
            for folder, entries in by_folder(path, files).items()
            for name, file in entries
            if file.link is None
        ]
        try:
            sent = S3Mover(self._remote.requests).upload(path, sources, self._report)
        except OSError as error:
            raise StoreError(f"{what} in {self.workplace}: {describe(error)}") from error
        by_path = {file.path: file for file in sent}
        if _is_snapshot(path):
            self._forget(path)
        return tuple(by_path.get(file.path, file) for file in files)

    def copy(self, source: str, target: str, files: Tuple[SavedFile, ...]) -> None:
        """Copy a save within the workplace; or from the bucket, to what an execution resumes from."""
        if not _is_import(target):
            self._local.copy(source, target, files)
            return
        make_workplace(self.workplace)
        what = f"copy of {self.location}/{source} to {self.local(target)}"
        *parents, name = save_parts(target)
        temporary = f"{new_nonce()}.copy"
        single = [file.path for file in files] == [""]
        try:
            with open_root(self.workplace) as root, open_folder(root, parents, make=True) as shelf:
                if os.path.lexists(self.local(target)):
                    raise Exists(f"{self.local(target)} is there already")
                with open_folder(root, [TEMPORARY], make=True) as workshop:
                    try:
                        self._fetch(source, os.path.join(self.workplace, TEMPORARY, temporary), files, single)
                        reach("s3.place-import")
                        os.rename(temporary, name, src_dir_fd=workshop, dst_dir_fd=shelf)
                    finally:
                        remove_all(workshop, temporary)
        except OSError as error:
            raise StoreError(f"{what}: {describe(error)}") from error

    def _fetch(self, source: str, folder: str, files: Tuple[SavedFile, ...], single: bool) -> None:
        targets: List[Tuple[SavedFile, str, str]] = []
        if not single:
            os.mkdir(folder, 0o700)
        for file in files:
            target = os.path.join(folder, file.path) if file.path else folder
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            if file.link is not None:
                os.symlink(file.link, target)
            else:
                path = f"{source}/{file.path}" if file.path else source
                targets.append((file, self._remote.place.key(path), target))
        S3Mover(self._remote.requests).download(source, targets, self._report)

    def _forget(self, path: str) -> None:
        *parents, name = split_path(path)
        with suppress(OSError), open_root(self.workplace) as root, open_folder(root, parents) as shelf:
            remove_all(shelf, name)


def _is_import(path: str) -> bool:
    parts = path.split("/")
    return parts[0] == META and parts[2:3] == ["resume"]


def _is_snapshot(path: str) -> bool:
    parts = path.split("/")
    return parts[0] == META and parts[2:3] == ["snap"]
