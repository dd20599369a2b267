"""What a supervisor may learn from a checkpoint root that it can reach. It reads no save."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from prefect_dispatch.errors import Absent, DispatchError, MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.manifest import Manifest, manifest_prefix
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.claim import read_claim
from prefect_dispatch.stores.journal import JournalEntry
from prefect_dispatch.stores.layout import manifests_folder, owner_of
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.stores.port import Store
from prefect_dispatch.stores.published import list_publications
from prefect_dispatch.stores.verdict import Judge, group_manifests

MOST_NAMES = 200_000
"""Names that a ledger of a root may have for a supervisor to list it: twice what a long job comes to, 100 MB."""
MOST_PROGRESS_ENTRIES = 200
"""Journal entries that one look at a progress reads at most."""
MOST_JOURNAL_BYTES = 2 * 1024 * 1024
"""Bytes of a journal that one look reads, the newest: hostile ones take 25 times as much in memory, and 200 of the
longest would take gigabytes. Those of an honest job have some hundred bytes each."""
MOST_SAVES = 2000
"""Saves that one look finds the times of, the newest."""
MOST_MANIFEST_BYTES = 4 * 1024 * 1024
"""The longest manifest that is read for the time of a save; 30,000 files fit."""
MOST_MANIFESTS_BYTES = 32 * 1024 * 1024
"""Bytes of manifests that one look reads, of the newest saves; it takes about a second."""
MOST_FAULTS = 100
"""Faults that are kept and told: a job that makes a new one each second must not fill memory and logs."""
MOST_FAULT = 2000
MOST_DETAIL = 500
MOST_STATUS = 200
MOST_FORGED = 1000
"""Publications that no execution can have made which the look for a final save passes over."""
CLOCK_SKEW = timedelta(days=1)
"""How far a host's clock may be ahead of ours; what is later would stretch a picture until nothing can be seen."""

_WHY = {
    ExitReason.PROGRAM: "",
    ExitReason.NOTICE: "it ended after it was asked to",
    ExitReason.KILLED: "it was killed when its notice period was over",
    ExitReason.FAIL: "the program said that it has failed",
    ExitReason.SAVES: "its saves could not be published",
    ExitReason.GUARDIAN_LOST: "its guardian was killed",
    ExitReason.REFUSED: "the helper did not start the program",
}
"""What the helper's last word adds to an exit code, for people."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinalSave:
    """The save that a generation ended with.

    Attributes:
        publication: its name.
        produced_by: the attempt that published it.
        resumed_from: what that attempt had resumed from; None for a start from scratch.
    """

    publication: str
    produced_by: str
    resumed_from: str | None


@dataclass(frozen=True)
class Progress:
    """What a program says of itself.

    Attributes:
        percent: how much is done, 0 to 100; None where it has not said.
        status: what it is doing; empty where it has not said.
    """

    percent: float | None = None
    status: str = ""


class RootView:
    """A lineage's root, seen from outside. Every method answers None where the root cannot tell.

    A job may write whatever it likes into its root, and supervisors look after many: so what is read is bounded in size
    and count, and text comes out as one harmless line of a bounded length.

    Args:
        root: the root.
        now: the time; no host's clock is believed to be far ahead of it.
    """

    def __init__(self, root: LineageRoot, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._root = root
        self._now = now
        self._faults: dict[str, None] = {}

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read so far, each once: a malformed name is never skipped in silence."""
        return tuple(self._faults)

    def publications(self) -> list[Publication] | None:
        """All publications, in order."""
        return self._ask(lambda: list_publications(self._root.store, MOST_NAMES))

    def published(self, generation: int) -> int | None:
        """How many publications a generation has."""
        publications = self.publications()
        if publications is None:
            return None
        return sum(1 for publication in publications if publication.epoch.generation == generation)

    def last_word(self, epoch: Epoch, attempt: str) -> LastWord | None:
        """What an execution left behind about its end."""

        def look() -> LastWord:
            try:
                read_claim(self._root.store, epoch)
            except Absent:
                return LastWord(claimed=False)
            told = ""
            for entry in self._entries(attempt):
                if entry.kind in (JournalKind.FAIL.value, JournalKind.FAULT.value):
                    told = f": {_text(entry, MOST_DETAIL)}"
                if entry.kind == JournalKind.EXIT.value:
                    return last_word_of(ExitNote.of_fields(entry.fields, f"the last word of {attempt}"), told)
            return LastWord(claimed=True)

        return self._ask(look)

    def exited_at(self, attempt: str) -> datetime | None:
        """When an execution's wrapper wrote its last word, by its host's clock."""

        def look() -> datetime | None:
            for entry in reversed(self._entries(attempt)):
                if entry.kind == JournalKind.EXIT.value:
                    return self._moment(entry.fields.get("at"))
            return None

        return self._ask(look)

    def progress(self, attempt: str) -> Progress | None:
        """What an execution's program last said of itself."""

        def look() -> Progress:
            percent: float | None = None
            status = ""
            for entry in self._entries(attempt):
                told = _number(entry.fields.get("percent"))
                if entry.kind == JournalKind.PROGRESS.value and told is not None:
                    percent = min(100.0, max(0.0, told))
                if entry.kind == JournalKind.STATUS.value:
                    status = _text(entry, MOST_STATUS)
                if entry.kind == JournalKind.TRANSFER.value:
                    status = _transfer(entry)
            return Progress(percent, status)

        return self._ask(look)

    def final_save(self, generation: int) -> FinalSave | None:
        """The newest publication of a generation, and what the execution behind it had resumed from.

        A name that its execution cannot have made is none, as when a resume point is chosen.
        """
        own = [each for each in self.publications() or [] if each.epoch.generation == generation]
        judge = Judge(self._root.store)
        for publication in own[: -MOST_FORGED - 1 : -1]:
            if self._ask(lambda: judge.judge_origin(publication)) is not None:  # noqa: B023
                continue
            attempt = owner_of(publication.path) or ""
            pin = self.pin(attempt)
            source = pin.publication if pin is not None else None
            return FinalSave(publication.name, attempt, source.name if source is not None else None)
        return None

    def pin(self, attempt: str) -> Pin | None:
        """What an execution has decided to resume from; a pin without a publication is a start from scratch."""
        try:
            split_attempt(attempt)
        except MalformedName:
            return None
        return self._ask(lambda: self._root.pinned(attempt))

    def saved_at(self, publications: Sequence[Publication]) -> dict[Publication, datetime]:
        """When the last file of each save was written, by its host's clock, where that is known.

        The newest are looked at first; what is beyond the bounds of what a look may read is left out.
        """
        manifests = _Manifests(self._root.store)
        found: dict[Publication, datetime] = {}
        for publication in publications[: -MOST_SAVES - 1 : -1]:
            written = self._ask(lambda: manifests.written(publication))  # noqa: B023
            at = self._moment(written)
            if at is not None:
                found[publication] = at
        return {publication: found[publication] for publication in publications if publication in found}

    def _entries(self, attempt: str) -> list[JournalEntry]:
        journal = self._root.journal(attempt)
        return journal.entries(limit=MOST_PROGRESS_ENTRIES, most_names=MOST_NAMES, most_bytes=MOST_JOURNAL_BYTES)

    def _moment(self, seconds: object) -> datetime | None:
        """A time of another host's clock, if it can be one."""
        number = _number(seconds)
        if number is None or not 0 < number <= (self._now() + CLOCK_SKEW).timestamp():
            return None
        return datetime.fromtimestamp(number, UTC)

    def _ask(self, look: Callable[[], T]) -> T | None:
        try:
            # A root that is gone looks like an empty one, of which much that is false would follow.
            self._root.require()
            return look()
        except DispatchError as error:
            self._note(error)
            return None

    def _note(self, error: DispatchError) -> None:
        text = printable(str(error), MOST_FAULT)
        if text not in self._faults and len(self._faults) < MOST_FAULTS:
            self._faults[text] = None
            _log.info("%s", text, extra={"action": "root.unreadable"})


def last_word_of(note: ExitNote, told: str) -> LastWord:
    """What an exit note says to people, with what else was told before it."""
    why = _WHY[note.reason]
    return LastWord(True, note.program_started, f"{why}{told}" if why else "")


class _Manifests:
    """The manifests of a root, read within the bounds of one look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, dict[str, list[str]]] = {}
        self._room = MOST_MANIFESTS_BYTES

    def written(self, publication: Publication) -> float | None:
        """When the last file of a save was written, in seconds since 1970."""
        attempt = owner_of(publication.path)
        if attempt is None or self._room <= 0:
            return None
        ledger = self._store.ledger(manifests_folder(attempt))
        if attempt not in self._names:
            # Noted first: a folder that cannot be listed is asked once and not for each of its publications.
            self._names[attempt] = {}
            self._names[attempt] = group_manifests(ledger.names(most=MOST_NAMES))
        for name in self._names[attempt].get(manifest_prefix(publication), ())[:1]:
            data = ledger.read(name, MOST_MANIFEST_BYTES)
            self._room -= len(data)
            if len(data) <= MOST_MANIFEST_BYTES:
                manifest = Manifest.decode(data, name)
                return max((file.mtime_ns for file in manifest.files), default=0) / 1e9
        return None


def _number(value: object) -> float | None:
    """A number of a document, if it is one that can be reckoned with."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _transfer(entry: JournalEntry) -> str:
    """How far a save is on its way, in words; empty where the entry does not say."""
    done, total = _number(entry.fields.get("done")), _number(entry.fields.get("total"))
    words = {"upload": "uploading", "download": "downloading"}
    direction = entry.fields.get("direction")
    if done is None or not total or not isinstance(direction, str) or direction not in words:
        return ""
    return f"{words[direction]} a save: {max(0.0, min(1.0, done / total)):.0%} of {total / 1e6:,.1f} MB"


def _text(entry: JournalEntry, most: int) -> str:
    """What an entry tells, as one harmless line."""
    text = entry.fields.get("text", "")
    return printable(text, most) if isinstance(text, str) else ""
