"""The record of a lineage: facts appended by compare-and-append, and snapshots of their fold."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Iterator
from datetime import datetime

from pydantic import ValidationError

from prefect_dispatch.errors import (
    Absent,
    DispatchError,
    Exists,
    LineageError,
    MalformedDocument,
    MalformedName,
    ReadOnlyLineage,
    RootAbsent,
    StoreUnreachable,
)
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import FORMAT, MAX_DOCUMENT_BYTES, decode, encode, field
from prefect_dispatch.format.names import check_lineage, new_nonce, new_record_id
from prefect_dispatch.model.facts import Entry, Fact, Finished, HoldOpened, Opened, Reopened, StopRequested
from prefect_dispatch.model.fold import FOLD_VERSION, apply, fold
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.documents import create_once
from prefect_dispatch.stores.layout import RECORD
from prefect_dispatch.stores.port import Ledger, Store
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.copies import copy_of

SNAPSHOT_EVERY = 64
"""Facts between two snapshots of the fold; another one is taken when a hold opens."""

_NAME = re.compile(r"([0-9]{20})\.json\Z")
_log = logging.getLogger(__name__)


class Record:
    """One lineage's record, as one supervisor sees it.

    Not for several threads at once. Any number of processes may have one each.

    Args:
        store: rooted at ``<record root>/<lineage>``.
        index: the ledger of open lineages, shared by all lineages of the record root.
        lineage: the lineage's name.
        clock: stamps the facts that are appended.
        writer: this supervisor's random id.
    """

    def __init__(self, store: Store, index: Ledger, lineage: str, clock: Clock, writer: str | None = None) -> None:
        self.lineage = check_lineage(lineage)
        self.writer = writer or new_nonce()
        self._store = store
        self._index = index
        self._clock = clock
        self._facts = store.ledger(RECORD)
        self._snapshots = store.ledger(f"fold/{FOLD_VERSION}")
        self._state: LineageState | None = None
        self._tail = b""
        self._id: str | None = None
        self._unreadable: ReadOnlyLineage | None = None

    @property
    def location(self) -> str:
        """Where the record is, for people."""
        return self._store.location

    @property
    def last(self) -> LineageState | None:
        """What the last reading or append came to; None before the first."""
        return self._state

    def now(self) -> datetime:
        """The time with which a fact would be stamped."""
        return self._clock.now()

    @property
    def known(self) -> LineageState:
        """What was read and appended so far folds to, without looking again."""
        return self._state if self._state is not None else LineageState()

    @property
    def unreadable(self) -> str | None:
        """Why this version may only read this lineage; None when it may write."""
        return None if self._unreadable is None else str(self._unreadable)

    def require_writable(self) -> None:
        """Find out that what was read so far holds nothing that this version does not know.

        Raises:
            ReadOnlyLineage: it does; the text names the fact.
        """
        if self._unreadable is not None:
            raise self._unreadable

    def exists(self) -> bool:
        """Whether the record was begun.

        Raises:
            StoreError: it cannot be told.
        """
        try:
            self._store.ledger("").read("record.json")
        except (Absent, RootAbsent):
            return False
        return True

    def why_not_opened(self) -> LineageError:
        """What to say of a lineage that no fact has opened."""
        return LineageError(
            f"lineage {self.lineage!r} was never opened in {self.location}; see prefect-dispatch status --store … for "
            "what is there"
        )

    def id(self) -> str:
        """The record's random id, made on first use and bound to the checkpoint root by its first claim.

        Raises:
            StoreUnreachable: the record root cannot be written, or what was read before is not there any more.
        """
        if self._id is None:
            ledger = self._store.ledger("")
            try:
                document = decode(ledger.read("record.json"), self._place("record.json"))
            except (Absent, RootAbsent) as error:
                if self.known.seq > 0 or self._has_facts():
                    # A probe would make an empty record in the place of one that is away.
                    raise StoreUnreachable(
                        f"{self._place('record.json')} is not there although facts are; bring it back"
                    ) from error
                self._store.probe()
                # Before the document: from then on a folder that is not there is away, and not empty.
                self._store.make_folder(RECORD)
                reach("record-id")
                with contextlib.suppress(Exists):
                    create_once(ledger, "record.json", {"id": new_record_id(), "lineage": self.lineage})
                document = decode(ledger.read("record.json"), self._place("record.json"))
            self._id = field(document, "id", str, self._place("record.json"))
        return self._id

    def _has_facts(self) -> bool:
        try:
            self._facts.read(_name(1))
        except (Absent, RootAbsent):
            return False
        return True

    def refresh(self) -> LineageState:
        """Read on from where this supervisor stands, and fold.

        The first call begins at the newest snapshot. Reading goes forward by name, since a listing may lack a name that
        is there; a name that is missing although a later one is there is a gap.

        Raises:
            MalformedName: a name in ``record/`` is not a fact's.
            MalformedDocument: a fact does not parse, or one is missing in the middle.
            StoreUnreachable: what was read before is not there any more.
            StoreError: the store failed.
        """
        if self._state is None and not self._is_begun():
            return LineageState()
        known = self._state if self._state is not None else self._newest_snapshot()
        self._confirm_stands(known.seq)
        read = list(self._entries_after(known.seq))
        state = fold([entry for entry, _ in read], known)
        if self._state is None:
            self._confirm_end(state.seq)
        # Both or neither, and only now: where reading failed on the way, the next refresh begins where this one did.
        if self._state is None and state.opened is not None:
            self._unreadable = self._unreadable or copy_of(state.opened, self.lineage, self.location)
        self._state = state
        if read:
            self._tail = read[-1][1]
        return state

    def entries(self) -> list[Entry]:
        """Read all facts, in order.

        Raises:
            MalformedName: a name in ``record/`` is not a fact's.
            MalformedDocument: a fact does not parse, or one is missing in the middle.
            StoreUnreachable: what was read before is not there any more.
            StoreError: the store failed.
        """
        known = self.known.seq
        if not self._is_begun():
            # Where all of a store is away, nothing in it tells that there is a record.
            self._confirm_stands(known)
            return []
        entries = [entry for entry, _ in self._entries_after(0)]
        if len(entries) < known:
            self._confirm_stands(known)
        self._confirm_end(len(entries))
        return entries

    def append(self, fact: Fact, generation: int | None = None) -> LineageState:
        """Append one fact right behind the state that the last :meth:`refresh` or append returned.

        Args:
            fact: what happened.
            generation: which generation it belongs to; the current one where left out.

        Returns:
            The state with the fact.

        Raises:
            Exists: somebody else appended; refresh, decide again, and query again.
            ReadOnlyLineage: the record holds what this version does not know.
            StoreUnreachable: what was read before is not there any more; the fact is not in the record.
            StoreError: the store failed; the fact may or may not be there.
        """
        state = self._state if self._state is not None else self.refresh()
        self.require_writable()
        entry = Entry(
            seq=state.seq + 1,
            at=self._clock.now(),
            by=self.writer,
            nonce=new_nonce(),
            generation=state.generation if generation is None else generation,
            fact=fact,
        )
        if state.seq == 0:
            self.id()
        # Before the fact: who looks after holds and requests of people finds them by it, also where an index was lost.
        if isinstance(fact, Opened | Reopened | HoldOpened | StopRequested):
            self._mark_open()
        # A store makes the folders that it needs: where the record has gone away, an append would begin another one.
        self._confirm_stands(state.seq)
        reach("fact")
        create_once(self._facts, _name(entry.seq), entry.document(), entry.nonce, MAX_DOCUMENT_BYTES)
        self._confirm_stands(state.seq)
        self._state, self._tail = apply(state, entry), entry.encode()
        _log.info(
            "%s: %s (seq %d)",
            self.lineage,
            fact.kind,
            entry.seq,
            extra={"action": f"record.{fact.kind}", "lineage": self.lineage, "seq": entry.seq},
        )
        after = self._state
        self._after_append(after, fact)
        return after

    def settle_index(self) -> None:
        """Have the index of open lineages say what was last read: whoever opened or finished it may have died then.

        It may fail, as everything that is derived may; the next one who looks at the lineage does it.
        """
        try:
            if self.known.open:
                # What was read may be over by now, and its finisher has taken away what is marked here again.
                if self._mark_open() and self.refresh().finished is not None:
                    self._unmark_finished()
            elif self.known.finished is not None and self._is_marked_open():
                self._unmark_finished()
        except DispatchError as error:
            _log.warning("%s: %s", self.lineage, error, extra={"action": "record.derived_failed"})

    def _unmark_finished(self) -> None:
        self._unmark_open()
        # Whoever reopens or supersedes marks the lineage before, which this may just have taken back.
        if self.refresh().finished is None:
            self._mark_open()

    def _after_append(self, state: LineageState, fact: Fact) -> None:
        """Write what is derived. It may fail: the fact stands, and each of these can be made again."""
        try:
            if isinstance(fact, Finished):
                self._unmark_finished()
            if isinstance(fact, Opened | Reopened):
                # The mark from before may have been the last generation's, which its finisher has just taken away.
                self._mark_open()
            # A hold is looked at again and again, by pollers that each begin anew.
            if state.seq % SNAPSHOT_EVERY == 0 or isinstance(fact, HoldOpened):
                body = snapshot_of(state, self._tail)
                reach("fold")
                with contextlib.suppress(Exists):
                    self._snapshots.create(_name(state.seq), body)
        except DispatchError as error:
            _log.warning("%s: %s", self.lineage, error, extra={"action": "record.derived_failed"})

    def _is_begun(self) -> bool:
        """Whether a fact may be there. Before the record is begun its lineage's folder is not.

        Raises:
            StoreUnreachable: it was begun, and what holds the facts is away.
        """
        try:
            self._facts.read(_name(1))
        except (Absent, RootAbsent) as error:
            if self.exists():
                if isinstance(error, RootAbsent):
                    raise
            elif self._is_marked_open():
                raise StoreUnreachable(
                    f"lineage {self.lineage!r} is open, as .dispatch/open beside it says, but its record "
                    f"{self.location} is not there; bring it back (was the folder moved, is its file system mounted?), "
                    f"or remove .dispatch/open/{self.lineage} if it was deleted on purpose"
                ) from None
            return not isinstance(error, RootAbsent)
        return True

    def _mark_open(self) -> bool:
        """Mark the lineage as open. Answers whether it was not marked."""
        reach("open-mark")
        try:
            self._index.create(self.lineage)
        except Exists:
            return False
        return True

    def _is_marked_open(self) -> bool:
        try:
            self._index.read(self.lineage)
        except (Absent, RootAbsent):
            return False
        return True

    def _unmark_open(self) -> None:
        reach("open-unmark")
        self._index.remove(self.lineage)

    def _newest_snapshot(self) -> LineageState:
        for name in reversed(self._snapshots.names()):
            if _NAME.match(name) is None:
                continue
            try:
                document = decode(self._snapshots.read(name), self._place(f"fold/{FOLD_VERSION}/{name}"))
                state = LineageState.model_validate(document.get("state"))
                last = field(document, "last", str, self._place(f"fold/{FOLD_VERSION}/{name}"))
            except (DispatchError, ValidationError) as error:
                text = "%s: snapshot %s is passed over: %s"
                _log.warning(text, self.lineage, name, error, extra={"action": "record.snapshot_passed_over"})
                continue
            if _name(state.seq) == name:
                self._tail = self._end_of_snapshot(name, last)
                return state
        return LineageState()

    def _end_of_snapshot(self, name: str, digest: str) -> bytes:
        """The fact that a snapshot ends with. It was there before: without it, or with another, facts were lost."""
        try:
            last = self._facts.read(name)
        except Absent:
            last = b""
        if _digest(last) != digest:
            raise MalformedDocument(
                f"{self._place(f'fold/{FOLD_VERSION}/{name}')} was made of facts that {self._place('record')} lacks: "
                "restore them; or, if you restored an older record and accept what that forgets, remove "
                f"{self._place('fold')}"
            )
        return last

    def _confirm_stands(self, seq: int) -> None:
        """Find out that the last fact that was read is still there, and the same."""
        if seq == 0:
            return
        try:
            stands = self._facts.read(_name(seq)) == self._tail
        except Absent:
            stands = False
        if not stands:
            raise StoreUnreachable(
                f"{self._place(f'record/{_name(seq)}')}, which was read before, is not there any more; "
                "is the file system of the record mounted?"
            )

    def _entries_after(self, seq: int) -> Iterator[tuple[Entry, bytes]]:
        """The facts behind a number, each with its bytes."""
        while True:
            seq += 1
            try:
                data = self._facts.read(_name(seq))
            except Absent:
                return
            try:
                entry = Entry.decode(data, self._place(f"record/{_name(seq)}"))
            except ReadOnlyLineage as error:
                self._unreadable = error
                return
            if entry.seq != seq:
                raise MalformedDocument(f"{self._place(f'record/{_name(seq)}')} says seq {entry.seq}")
            yield entry, data

    def _confirm_end(self, last: int) -> None:
        """Find names that do not parse, and a gap: a later fact although the next one is confirmed absent."""
        if self._unreadable is not None:
            return
        # All have 20 digits, so their text orders them; to read each as a number takes as long again.
        nothing, due = _name(0), _name(last + 1)
        for name in self._facts.names():
            if name == nothing or _NAME.match(name) is None:
                raise MalformedName(
                    f"{self._place(f'record/{name}')} is not a fact's name; find out who wrote it, then move it away"
                )
            if name > due:
                self._confirm_gap(last + 1, name)

    def _confirm_gap(self, missing: int, later: str) -> None:
        """Writers may have gone on since we read: only a name that is absent while a later one was listed is a gap."""
        try:
            self._facts.read(_name(missing))
        except Absent:
            raise MalformedDocument(
                f"{self._place(f'record/{_name(missing)}')} is missing although {later} is there; restore the record"
            ) from None

    def _place(self, name: str) -> str:
        return f"{self._store.location}/{name}"


def snapshot_of(state: LineageState, last: bytes) -> bytes:
    """The snapshot of what facts fold to.

    Args:
        state: what they fold to.
        last: the last of them, as it is stored.
    """
    return encode({"format": FORMAT, "state": state.model_dump(mode="json"), "last": _digest(last)})


def _digest(fact: bytes) -> str:
    return hashlib.sha256(fact).hexdigest()


def _name(seq: int) -> str:
    return f"{seq:020d}.json"
