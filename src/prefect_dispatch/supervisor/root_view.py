"""What a supervisor may learn from a checkpoint root that it can reach. It reads no save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from prefect_dispatch.errors import Absent, DispatchError, MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.manifest import Manifest, manifest_prefix
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.claim import read_claim
from prefect_dispatch.stores.layout import manifests_folder, owner_of
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.pin import Pin

MOST_PROGRESS_ENTRIES = 200
"""Journal entries that one look at a progress reads at most."""

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
    """A lineage's root, seen from outside. Every method answers None where the root cannot tell."""

    def __init__(self, root: LineageRoot) -> None:
        self._root = root
        self._faults: dict[str, None] = {}

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read so far, each once: a malformed name is never skipped in silence."""
        return tuple(self._faults)

    def publications(self) -> list[Publication] | None:
        """All publications, in order."""
        return self._ask(self._root.publications)

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
            for entry in self._root.journal(attempt).entries(limit=MOST_PROGRESS_ENTRIES):
                if entry.kind in (JournalKind.FAIL.value, JournalKind.FAULT.value):
                    told = f": {str(entry.fields.get('text', ''))[:500]}"
                if entry.kind == JournalKind.EXIT.value:
                    note = ExitNote.of_fields(entry.fields, f"the last word of {attempt}")
                    why = _WHY[note.reason]
                    return LastWord(True, note.program_started, f"{why}{told}" if why else "")
            return LastWord(claimed=True)

        return self._ask(look)

    def exited_at(self, attempt: str) -> datetime | None:
        """When an execution's wrapper wrote its last word, by its host's clock."""

        def look() -> datetime | None:
            for entry in reversed(self._root.journal(attempt).entries(limit=MOST_PROGRESS_ENTRIES)):
                if entry.kind == JournalKind.EXIT.value:
                    return _moment(entry.fields.get("at"))
            return None

        return self._ask(look)

    def progress(self, attempt: str) -> Progress | None:
        """What an execution's program last said of itself."""

        def look() -> Progress:
            percent: float | None = None
            status = ""
            for entry in self._root.journal(attempt).entries(limit=MOST_PROGRESS_ENTRIES):
                if entry.kind == JournalKind.PROGRESS.value and isinstance(entry.fields.get("percent"), (int, float)):
                    percent = min(100.0, max(0.0, float(entry.fields["percent"])))
                if entry.kind == JournalKind.STATUS.value:
                    status = str(entry.fields.get("text", ""))[:200]
            return Progress(percent, status)

        return self._ask(look)

    def final_save(self, generation: int) -> FinalSave | None:
        """The newest publication of a generation, and what the execution behind it had resumed from."""
        own = [each for each in self.publications() or [] if each.epoch.generation == generation]
        if not own:
            return None
        attempt = owner_of(own[-1].path) or ""
        pin = self.pin(attempt)
        source = pin.publication if pin is not None else None
        return FinalSave(own[-1].name, attempt, source.name if source is not None else None)

    def pin(self, attempt: str) -> Pin | None:
        """What an execution has decided to resume from; a pin without a publication is a start from scratch."""
        try:
            split_attempt(attempt)
        except MalformedName:
            return None
        return self._ask(lambda: self._root.pinned(attempt))

    def saved_at(self, publications: Sequence[Publication]) -> dict[Publication, datetime]:
        """When the last file of each save was written, by its host's clock, where that is known."""
        names: dict[str, list[str]] = {}
        found: dict[Publication, datetime] = {}
        for publication in publications:
            at = self._ask(lambda: self._saved_at(publication, names))  # noqa: B023
            if at is not None:
                found[publication] = at
        return found

    def _saved_at(self, publication: Publication, names: dict[str, list[str]]) -> datetime | None:
        attempt = owner_of(publication.path)
        if attempt is None:
            return None
        ledger = self._root.store.ledger(manifests_folder(attempt))
        if attempt not in names:
            names[attempt] = ledger.names()
        prefix = manifest_prefix(publication)
        for name in names[attempt]:
            if name.startswith(prefix):
                manifest = Manifest.decode(ledger.read(name), name)
                return _moment(max((file.mtime_ns for file in manifest.files), default=0) / 1e9)
        return None

    def _ask(self, look: Callable[[], T]) -> T | None:
        try:
            # A root that is gone looks like an empty one, of which much that is false would follow.
            self._root.require()
            return look()
        except DispatchError as error:
            self._note(error)
            return None

    def _note(self, error: DispatchError) -> None:
        text = str(error)
        if text not in self._faults:
            self._faults[text] = None
            _log.info("%s", text, extra={"action": "root.unreadable"})


def _moment(seconds: object) -> datetime | None:
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < 1e11:
        return None
    return datetime.fromtimestamp(seconds, UTC)
