"""The pin: decided once, when an execution starts, what it resumes from; that save is imported before it is noted."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, Exists, MalformedDocument, MalformedName
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import SMALL_DOCUMENT_BYTES, Json, encode, field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.format.printable import printable, shorten
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.layout import RESUME_DOCUMENT, import_path, meta_folder
from prefect_dispatch.stores.resume import PassedOver, Resume, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

    from prefect_dispatch.stores.port import Store

MOST_PASSED_OVER = 500
"""What a pin names of the publications that were passed over, the greatest."""
MOST_BYTES_PASSED_OVER = SMALL_DOCUMENT_BYTES // 4
"""What that may take of the document: however many there are, with whatever names, the pin is written."""
_LONGEST_WHY = 500


@dataclass(frozen=True)
class Pin:
    """What one execution resumes from.

    Args:
        choice: the resume choice that it was decided by.
        publication: the publication; None for a start from scratch.
        path: the imported save, relative to the lineage's root; None for a start from scratch.
        state: the program's own state string of that save, else empty.
        passed_over: what was not taken, and why.
        notes: what should be told.
    """

    choice: ResumeChoice
    publication: Optional[Publication] = None
    path: Optional[str] = None
    state: str = ""
    passed_over: Tuple[PassedOver, ...] = ()
    notes: Tuple[str, ...] = ()

    @property
    def step(self) -> Optional[int]:
        """The save's step; None for a start from scratch."""
        return None if self.publication is None else self.publication.step

    def encode(self) -> Json:
        """Its fields as ``resume.json`` carries them."""
        return {
            **self.choice.encode(),
            "publication": None if self.publication is None else self.publication.name,
            "step": self.step,
            "path": self.path,
            "state": self.state,
            "passed_over": [
                {
                    "publication": entry.publication.name,
                    "why": printable(entry.why, _LONGEST_WHY),
                    "forged": entry.forged,
                }
                for entry in self.passed_over
            ],
            "notes": list(self.notes),
        }

    @classmethod
    def decode(cls, document: Mapping[str, Any], what: str) -> Pin:
        """Read the fields of a ``resume.json``.

        Raises:
            MalformedDocument: they are not a pin's.
        """
        name = field(document, "publication", (str, type(None)), what)
        passed_over: List[Dict[str, Any]] = field(document, "passed_over", list, what)
        try:
            return cls(
                ResumeChoice.decode(field(document, "base", str, what), field(document, "floor", int, what), what),
                None if name is None else Publication.parse(name),
                field(document, "path", (str, type(None)), what),
                field(document, "state", str, what),
                tuple(
                    PassedOver(
                        Publication.parse(field(entry, "publication", str, what)),
                        field(entry, "why", str, what),
                        field(entry, "forged", bool, what),
                    )
                    for entry in passed_over
                ),
                tuple(
                    note if isinstance(note, str) else shorten(note) for note in field(document, "notes", list, what)
                ),
            )
        except (MalformedName, TypeError) as error:
            raise MalformedDocument(f"{what}: {error}") from None


def read_pin(store: Store, attempt: str) -> Optional[Pin]:
    """Read what an execution resumes from, or None where it has not decided yet.

    Raises:
        MalformedDocument: it is not a pin.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    folder = meta_folder(attempt)
    what = f"{store.location}/{folder}/{RESUME_DOCUMENT}"
    try:
        return Pin.decode(read_document(store.ledger(folder), RESUME_DOCUMENT, what), what)
    except Absent:
        return None


def make_pin(store: Store, epoch: Epoch, attempt: str, choice: ResumeChoice, identity: Mapping[str, str]) -> Pin:
    """Decide, import and note; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.pin`."""
    pinned = read_pin(store, attempt)
    if pinned is not None:
        return pinned
    refuted: Dict[str, str] = {}
    failed: Set[str] = set()
    while True:
        resume = choose(store, choice, epoch, identity, refuted)
        if resume.publication is None:
            passed_over = _named(resume)
            pin = Pin(choice, passed_over=passed_over, notes=_left_out(resume, passed_over))
            break
        try:
            path = _import(store, attempt, resume)
        except Absent as error:
            # Its program may be alive and have rotated it away, which the next look tells; or the root was away for a
            # moment. One that is whole when looked at, and twice could not be copied, is being written to, or is not
            # what this manifest says; another one of the same publication may hold.
            manifest = resume.manifest.name if resume.manifest is not None else ""
            if manifest in failed:
                refuted[manifest] = str(error)
            failed.add(manifest)
            continue
        state = resume.manifest.state if resume.manifest is not None else ""
        passed_over = _named(resume)
        notes = (*resume.notes, *_left_out(resume, passed_over))
        pin = Pin(choice, resume.publication, path, state, passed_over, notes)
        break
    reach("pin")
    try:
        create_once(store.ledger(meta_folder(attempt)), RESUME_DOCUMENT, pin.encode())
    except Exists:
        pinned = read_pin(store, attempt)
        if pinned is None:
            raise
        return pinned
    return pin


def _named(resume: Resume) -> Tuple[PassedOver, ...]:
    """What was passed over, as far as the pin has room to name it."""
    named = resume.passed_over[:MOST_PASSED_OVER]
    while len(encode(Pin(ResumeChoice(), passed_over=named).encode())) > MOST_BYTES_PASSED_OVER:
        named = named[: len(named) // 2]
    return named


def _left_out(resume: Resume, named: Tuple[PassedOver, ...]) -> Tuple[str, ...]:
    count = len(resume.passed_over) - len(named)
    return (f"{count:,} more publications were passed over",) if count > 0 else ()


def _import(store: Store, attempt: str, resume: Resume) -> str:
    """Copy the save to this execution's own side, under its program's name, where nobody can delete it any more.

    Raises:
        Absent: it changed while it was copied.
    """
    assert resume.publication is not None and resume.manifest is not None
    name = resume.manifest.source.rpartition("/")[2]
    target = import_path(attempt, name)
    reach("import")
    try:
        store.copy(resume.publication.path, target, resume.manifest.files)
    except Exists:
        # It may be another save of that name, by another process of this attempt or by a copy of ours that failed, and
        # sizes do not tell them apart. So what lies there is not looked at.
        target = import_path(attempt, f"{new_nonce()}/{name}")
        store.copy(resume.publication.path, target, resume.manifest.files)
    difference = store.difference(target, resume.manifest.files)
    if difference is not None:
        raise Absent(f"it changed while it was imported: {difference}")
    return target
