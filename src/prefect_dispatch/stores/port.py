"""The port to a store: ledgers of exclusively created names, and the files of saves."""

from __future__ import annotations

from typing import List, Protocol, Tuple

from prefect_dispatch.format.manifest import SavedFile


class Ledger(Protocol):
    """One folder or prefix whose names are created exclusively and never rewritten."""

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a name with its whole content, durably: when this returns, a crash does not take it back.

        Never seen half written. Not idempotent by itself: use :func:`create_once` where one's own retry must succeed.

        Raises:
            Exists: the name is there, by whomever; nothing was changed, and that name is durable.
            StoreError: the store failed; the name may or may not have been created.
        """
        ...

    def read(self, name: str) -> bytes:
        """Read a name's content.

        Raises:
            Absent: the name is confirmed not to be there (never because a listing lacks it).
            StoreError: it cannot be told.
        """
        ...

    def names(self, after: str = "") -> List[str]:
        """List names greater than ``after``, sorted by their bytes. A folder that is not there yet has none.

        A listing is no snapshot: under a writer a name may be missing although a later one is there. Confirm a gap by
        reading the name.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a name. One that is absent is no error. Only for what may be made again, such as an index."""
        ...


class Store(Protocol):
    """A root that holds ledgers and the files of saves. Paths are relative to it, with '/' between their parts."""

    @property
    def location(self) -> str:
        """The root as people and other processes write it: an absolute path or a URL."""
        ...

    def probe(self) -> None:
        """Find out, on first use, that the root can be written and keeps exclusive creation. Leaves nothing behind.

        Raises:
            StoreUnreachable: it cannot, or does not; the text names the root and why.
        """
        ...

    def ledger(self, folder: str) -> Ledger:
        """The ledger at a folder; made by its first ``create``."""
        ...

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List every file of a save, ordered by path, dot files included; links as links, never followed.

        Raises:
            Absent: there is no such save.
            StoreError: part of it cannot be read, or it holds a link that leaves the save, a device, FIFO or socket.
        """
        ...

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> None:
        """Make a save's files and folders durable, up to the root. Idempotent.

        Raises:
            StoreError: the disk refused. What it holds of these files is unknown from now on; a second sync that
                succeeds proves nothing.
        """
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a save to a target that must not exist, so that later writes to either do not show in the other.

        By reflink where the file system has it, else by bytes; never by hard link. The target is whole or absent.

        Raises:
            Absent: there is no such source.
            Exists: the target is there.
            StoreError: the store failed.
        """
        ...
