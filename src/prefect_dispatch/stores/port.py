"""The port to a store: ledgers of exclusively created names, and the files of saves."""

from __future__ import annotations

from typing import List, Optional, Protocol, Tuple

from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.format.manifest import SavedFile


class Ledger(Protocol):
    """One folder or prefix whose names are created exclusively and never rewritten.

    Where the store's root is not there every method raises RootAbsent: nothing in it is known to be absent.
    """

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a name with its whole content, durably: when this returns, a crash does not take it back.

        Never seen half written. Not idempotent by itself: use
        :func:`~prefect_dispatch.stores.documents.create_once` where one's own retry must succeed.

        Raises:
            Exists: the name is there, by whomever; nothing was changed, and that name is durable.
            NotDurable: the name may be there, and a crash may take it back.
            RootAbsent: the store's root is not there; only a probe makes it.
            StoreError: the store failed; the name may or may not have been created.
        """
        ...

    def read(self, name: str, most: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a name's content: all of it, or the first ``most + 1`` bytes of what is longer.

        Raises:
            Absent: the name is confirmed not to be there (never because a listing lacks it).
            StoreError: it cannot be told.
        """
        ...

    def names(self, after: str = "", most: Optional[int] = None) -> List[str]:
        """List names greater than ``after``, sorted by their bytes. A folder that is not there yet has none.

        Args:
            after: the greatest name that is left out.
            most: how many entries the folder may hold, for a caller whom a job could drown in names; None for any.

        A listing is no snapshot: under a writer a name may be missing although a later one is there. Confirm a gap by
        reading the name.

        Raises:
            StoreError: the folder cannot be listed, is a symbolic link, or holds a name that is not UTF-8 or more
                entries than ``most``.
        """
        ...

    def unordered_names(self) -> List[str]:
        """List all names as :meth:`names` does, in whatever order costs nothing: very many take as long to sort.

        Raises:
            StoreError: as for :meth:`names`.
        """
        ...

    def strangers(self) -> List[str]:
        """List what is no regular file and so no name of the ledger: folders, links, FIFOs, devices; sorted.

        Raises:
            StoreError: as for :meth:`names`.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a name. One that is absent is no error. Only for what may be made again, such as an index.

        Raises:
            StoreError: the store failed.
        """
        ...


class Store(Protocol):
    """A root that holds ledgers and the files of saves. Paths are relative to it, with '/' between their parts.

    Where the root is not there every method raises RootAbsent, except for a probe that makes it.
    """

    @property
    def location(self) -> str:
        """The root as people and other processes write it: an absolute path or a URL."""
        ...

    def local(self, path: str) -> str:
        """Where a program of this machine finds a path of the root, absolute; a URL where it finds it nowhere."""
        ...

    def probe(self, make: bool = True) -> None:
        """Find out, on first use, that the root can be written and keeps exclusive creation.

        Sweeps what dead writers left in ``tmp/``, and leaves nothing else behind.

        Args:
            make: whether to make the root where it is not there.

        Raises:
            StoreUnreachable: it cannot, or does not; the text names the root and why.
        """
        ...

    def ledger(self, folder: str) -> Ledger:
        """The ledger at a folder; made by its first ``create``. The empty folder is the root itself."""
        ...

    def folders(self, path: str) -> List[str]:
        """List the names of the folders in a folder, sorted by their bytes. A folder that is not there yet has none.

        Raises:
            StoreError: it cannot be listed.
        """
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder, durably, with those above it. Idempotent.

        Raises:
            StoreError: the store failed, or something else has the name.
        """
        ...

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List every file of a save, ordered by path, dot files included; links as links, never followed.

        A save that is one file has one entry with an empty path. Empty folders do not count.

        Raises:
            Absent: there is no such save, or part of it went away meanwhile.
            Unpublishable: it is no save: it is reached over a link below its execution's folder, its folders are too
                deep, or part of it is a device, FIFO or socket, a link that leaves it, or not UTF-8.
            StoreError: part of it cannot be read.
        """
        ...

    def difference(self, path: str, files: Tuple[SavedFile, ...]) -> Optional[str]:
        """Say how a save differs from a list of its files.

        A file differs that is confirmed gone, of another size, or of another digest where the list has one. So does a
        save of which some files, and not all, have another modification time: see
        :func:`~prefect_dispatch.format.manifest.find_rewriting`. Each file is asked for by name, so that no cached
        listing decides. Files that the list lacks do not matter.

        Returns:
            The first difference in words, or None where there is none.

        Raises:
            StoreError: it cannot be told.
        """
        ...

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> Tuple[SavedFile, ...]:
        """Make these files of a save and their folders durable, up to the root. Idempotent.

        Returns:
            The files as a manifest should list them: with the digests of what was sent, where they had to be sent.

        Raises:
            Exists: other bytes are where the save would have to go, and what is there is never written over.
            Absent: a file is gone, or has another size than its entry.
            NotDurable: the disk refused. What it holds of these files is unknown from now on; a second sync that
                succeeds proves nothing.
            StoreError: a file cannot be opened.
        """
        ...

    def copy(self, source: str, target: str, files: Tuple[SavedFile, ...]) -> None:
        """Copy these files of a save to a target that must not exist; later writes to either do not show in the other.

        By reflink where the file system has it, else by bytes; never by hard link. Modification times are kept. To
        every process the target is whole or absent; it is durable after a ``sync``.

        Raises:
            Absent: a file of the source is gone, has another size than its entry, or was written to meanwhile.
            Exists: the target is there.
            StoreError: the store failed.
        """
        ...
