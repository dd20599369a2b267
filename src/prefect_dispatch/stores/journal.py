"""The journal: what the helper noted inside one execution, in order."""

from __future__ import annotations

from prefect_dispatch.errors import Exists, MalformedDocument, MalformedName
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import SMALL_DOCUMENT_BYTES, Json, decode, field
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.documents import create_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional

    from prefect_dispatch.stores.port import Ledger

MAX_ENTRY_BYTES = SMALL_DOCUMENT_BYTES
"""The longest entry that is read: a state of 64 KiB fits however it is escaped."""
_OWN_FIELDS = ("format", "seq", "kind", "nonce")


@dataclass(frozen=True)
class JournalEntry:
    """One entry.

    Args:
        seq: its place, from 1.
        kind: what it tells, such as ``status``.
        fields: the rest of it.
    """

    seq: int
    kind: str
    fields: Mapping[str, Any]


class Journal:
    """The journal of one execution. Its wrapper and the publishing commands of its program may append side by side.

    Args:
        ledger: where it lies.
        where: its place, for errors.
    """

    def __init__(self, ledger: Ledger, where: str) -> None:
        self._ledger = ledger
        self._where = where
        self._last = 0

    def append(self, kind: str, **fields: Any) -> JournalEntry:
        """Append one entry, durably, at the first free number.

        The journal is listed once, before the first entry, so that each costs the same however many there are.

        Args:
            kind: what it tells.
            fields: JSON values; not ``format``, ``seq``, ``kind`` or ``nonce``.

        Raises:
            MalformedName: the journal held a name that is not an entry's before the first append.
            MalformedDocument: the entry is longer than readers accept.
            StoreError: the store failed; the entry may or may not be there.
        """
        if not self._last:
            names = self._ledger.names()
            self._last = self._seq(names[-1]) if names else 0
        nonce = new_nonce()
        # A number of its own for each call, so that two threads leave no gap; who lost a race goes on to the next.
        seq = self._last
        while True:
            seq += 1
            reach("journal")
            try:
                create_once(self._ledger, f"{seq:020d}.json", {**fields, "seq": seq, "kind": kind}, nonce)
            except Exists:
                continue
            self._last = max(self._last, seq)
            return JournalEntry(seq, kind, fields)

    def entries(
        self,
        after: int = 0,
        limit: int = 10_000,
        most_names: Optional[int] = None,
        most_bytes: Optional[int] = None,
    ) -> List[JournalEntry]:
        """Read the newest entries with a number greater than ``after``, in order.

        Args:
            after: the number before the first.
            limit: how many to read at most.
            most_names: how many entries the journal may have; None for any.
            most_bytes: at how many bytes together to stop reading older ones; None for any.

        Raises:
            MalformedName: a name is not an entry's.
            MalformedDocument: an entry is not one, or longer than 1 MiB.
            UnknownFormat: an entry is of a newer format.
            StoreError: the store failed.
        """
        names = self._ledger.names(f"{after:020d}.json" if after else "", most_names)
        for name in names:
            self._seq(name)
        entries: List[JournalEntry] = []
        room = most_bytes
        for name in reversed(names[max(0, len(names) - limit) :]):
            data = self._ledger.read(name, MAX_ENTRY_BYTES)
            if room is not None:
                room -= len(data)
                if room < 0:
                    break
            entries.append(self._decode(name, data))
        return entries[::-1]

    def read(self, name: str) -> JournalEntry:
        """Read one entry by its name; errors as for :meth:`entries`."""
        return self._decode(name, self._ledger.read(name, MAX_ENTRY_BYTES))

    def _decode(self, name: str, data: bytes) -> JournalEntry:
        seq = self._seq(name)
        what = f"{self._where}/{name}"
        document: Json = decode(data, what, MAX_ENTRY_BYTES)
        if field(document, "seq", int, what) != seq:
            raise MalformedDocument(f"{what} says that it is entry {document['seq']}")
        kind = field(document, "kind", str, what)
        return JournalEntry(seq, kind, {name: value for name, value in document.items() if name not in _OWN_FIELDS})

    def _seq(self, name: str) -> int:
        digits = name[:20]
        if name != f"{digits}.json" or len(digits) != 20 or not digits.isascii() or not digits.isdigit():
            raise MalformedName(
                f"{self._where}/{name} is not a journal entry's name; find out who wrote it, then move it away"
            )
        return int(digits)
