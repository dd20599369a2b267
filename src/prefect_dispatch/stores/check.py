"""The check of a lineage's root: every name and document, and what they say of one another."""

from __future__ import annotations

import enum
from contextlib import contextmanager

from prefect_dispatch.errors import Absent, DispatchError, MalformedDocument, MalformedError, MalformedName
from prefect_dispatch.format.completion import Completion
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import check_manifest_name
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.claim import Claim, parse_claim_name, read_claim
from prefect_dispatch.stores.completions import read_completion
from prefect_dispatch.stores.deadline import read_deadline
from prefect_dispatch.stores.documents import read_document
from prefect_dispatch.stores.identity_reference import read_reference
from prefect_dispatch.stores.journal import Journal
from prefect_dispatch.stores.layout import (
    CLAIMS,
    DEADLINE,
    DONE,
    EXEC,
    FORMAT_DOCUMENT,
    HOMES,
    IDENTITY,
    KNOWN_FOLDERS,
    META,
    PRUNED,
    PUBLICATIONS,
    STANDING,
    TEMPORARY,
    barred_folder,
    exec_folder,
    generation_name,
    journal_folder,
    manifests_folder,
    meta_folder,
    numbers_folder,
    owner_of,
)
from prefect_dispatch.stores.pin import read_pin
from prefect_dispatch.stores.snapshots import parse_number
from prefect_dispatch.stores.started import Started, read_started
from prefect_dispatch.stores.verdict import Finding, Judge, read_barred, read_manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional

    from prefect_dispatch.stores.port import Store

MOST_FAULTS_OF_A_FOLDER = 1000
"""Faults that are told of one folder; the rest is counted. A job may have made junk without end."""


class Severity(enum.Enum):
    """How bad a finding is."""

    FAULT = "fault"
    """The root is not as the format says."""
    NOTE = "note"
    """The root is sound; this is worth knowing."""


@dataclass(frozen=True)
class Fault:
    """One finding.

    Args:
        place: the name or document, relative to the lineage's root.
        text: what is wrong with it.
        severity: how bad it is.
    """

    place: str
    text: str
    severity: Severity = Severity.FAULT

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.place}: {self.text}"


def check_root(store: Store) -> List[Fault]:
    """Check a root; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.check`."""
    return _Check(store).run()


class _Check:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: List[Fault] = []
        self._started: Dict[str, Started] = {}
        self._claims: Dict[Epoch, Claim] = {}
        self._counts: Dict[str, int] = {}

    def run(self) -> List[Fault]:
        if self._is_there_and_unfinished():
            self._note(".", "its preparation was not finished, and nothing was kept here yet")
            return self._found
        with self._reporting(FORMAT_DOCUMENT):
            document = read_document(self._store.ledger(""), FORMAT_DOCUMENT, FORMAT_DOCUMENT)
            for name in ("record", "lineage"):
                field(document, name, str, FORMAT_DOCUMENT)
        with self._reporting("."):
            folders = self._store.folders("")
            if not folders:
                return self._found
            for name in folders:
                if name not in KNOWN_FOLDERS:
                    self._note(name, "the format has no such folder")
        self._check_claims()
        for attempt in self._attempts(META):
            self._check_attempt(attempt)
        for attempt in self._attempts(EXEC):
            if attempt not in self._started:
                self._note(f"{EXEC}/{attempt}", "its execution has not started")
        for name in self._names(PRUNED):
            with self._reporting(f"{PRUNED}/{name}"):
                Publication.parse(name, PRUNED)
        self._check_completions()
        self._check_generations(IDENTITY, read_reference)
        self._check_generations(DEADLINE, read_deadline)
        self._check_publications()
        self._tell_the_rest()
        return self._found

    def _is_there_and_unfinished(self) -> bool:
        try:
            return self._is_unfinished()
        except MalformedError as error:
            self._fault(".", str(error))
            return False

    def _is_unfinished(self) -> bool:
        """Whether the root is as a crash before its first document leaves it. An empty folder may be anybody's."""
        ledger = self._store.ledger("")
        folders = ledger.strangers()
        if ledger.names() or TEMPORARY not in folders or not {TEMPORARY, *STANDING, *HOMES}.issuperset(folders):
            return False
        return not any(self._store.ledger(folder).names() for folder in folders if folder != TEMPORARY)

    def _check_claims(self) -> None:
        holders: Dict[str, Epoch] = {}
        for name in self._names(CLAIMS):
            place = f"{CLAIMS}/{name}"
            with self._reporting(place):
                claim = read_claim(self._store, parse_claim_name(name))
                self._claims[claim.epoch] = claim
                if claim.attempt in holders:
                    self._fault(place, f"attempt {claim.attempt} has claimed epoch {holders[claim.attempt]} too")
                holders[claim.attempt] = claim.epoch

    def _check_attempt(self, attempt: str) -> None:
        place = meta_folder(attempt)
        with self._reporting(f"{place}/started.json"):
            started = read_started(self._store, attempt)
            if started is None:
                self._note(place, "its execution has not started")
            else:
                self._started[attempt] = started
                self._check_started(started)
        with self._reporting(f"{place}/resume.json"):
            read_pin(self._store, attempt)
        if self._names(barred_folder(attempt)):
            with self._reporting(barred_folder(attempt)):
                read_barred(self._store, attempt)
        for name in self._names(numbers_folder(attempt)):
            with self._reporting(f"{numbers_folder(attempt)}/{name}"):
                parse_number(name, attempt)
        self._check_journal(attempt)
        for name in self._names(manifests_folder(attempt)):
            self._check_manifest(attempt, name, self._started.get(attempt))

    def _check_started(self, started: Started) -> None:
        place = f"{meta_folder(started.attempt)}/started.json"
        claim = self._claims.get(started.epoch)
        if claim is None and self._is_there(CLAIMS, started.epoch.digits):
            claim = read_claim(self._store, started.epoch)
        if claim is None:
            self._fault(place, f"it is of epoch {started.epoch}, which nobody has claimed")
        elif claim.attempt != started.attempt:
            self._fault(place, f"it is of epoch {started.epoch}, which {claim.attempt} has claimed")
        if split_attempt(started.attempt)[1] != started.epoch.restart:
            self._fault(place, f"its attempt is not of restart {started.epoch.restart}")

    def _check_manifest(self, attempt: str, name: str, started: Optional[Started]) -> None:
        place = f"{manifests_folder(attempt)}/{name}"
        with self._reporting(place):
            manifest = read_manifest(self._store, attempt, check_manifest_name(name))
            if manifest.name != name:
                self._fault(place, f"its fields are those of {manifest.name}")
            for what, path in (("path", manifest.publication.path), ("source", manifest.source)):
                if owner_of(path) != attempt and (what == "path" or path != exec_folder(attempt)):
                    self._fault(place, f"its {what} {path!r} is not this attempt's")
            if started is not None and manifest.publication.epoch != started.epoch:
                self._fault(place, f"it is of epoch {manifest.publication.epoch}, its attempt of {started.epoch}")

    def _check_journal(self, attempt: str) -> None:
        folder = journal_folder(attempt)
        journal = Journal(self._store.ledger(folder), folder)
        last = 0
        for name in self._names(folder):
            with self._reporting(f"{folder}/{name}"):
                seq = journal.read(name).seq
                if not all(self._is_there(folder, f"{between:020d}.json") for between in range(last + 1, seq)):
                    self._fault(f"{folder}/{name}", f"it follows entry {last}; those between are missing")
                last = seq

    def _check_completions(self) -> None:
        for name in self._names(DONE):
            place = f"{DONE}/{name}"
            with self._reporting(place):
                part = read_completion(self._store, Completion.parse(name))
                started = self._started_now(part.attempt)
                if started is None:
                    self._fault(place, f"attempt {part.attempt}, which wrote it, has no started.json")
                elif started.epoch != part.completion.epoch:
                    self._fault(place, f"it is of epoch {part.completion.epoch}, its attempt of {started.epoch}")

    def _check_generations(self, folder: str, read: Callable[[Store, int], object]) -> None:
        """Read every document of a folder that holds one for each generation."""
        for name in self._names(folder):
            place = f"{folder}/{name}"
            with self._reporting(place):
                digits = name[:20]
                if not (digits.isascii() and digits.isdigit() and generation_name(int(digits)) == name):
                    raise MalformedName(f"{place} is no generation's; find out who wrote it, then move it away")
                read(self._store, int(digits))

    def _check_publications(self) -> None:
        publications: List[Publication] = []
        for name in self._names(PUBLICATIONS):
            with self._reporting(f"{PUBLICATIONS}/{name}"):
                publications.append(Publication.parse(name))
        judge = Judge(self._store)
        whole_seen = unknown = False
        for publication in sorted(publications, key=lambda entry: entry.order, reverse=True):
            place = f"{PUBLICATIONS}/{publication.name}"
            with self._reporting(place):
                try:
                    verdict = judge.judge(publication)
                except MalformedName:
                    unknown = True  # The name that the verdict depends on is reported at its own place already.
                    continue
                whole_seen = whole_seen or verdict.finding is Finding.WHOLE
                text = f"save {publication.path!r}, step {publication.step}: {verdict.why}"
                if verdict.finding in (Finding.FORGED, Finding.UNPROVEN):
                    self._fault(place, text)
                elif verdict.finding in (Finding.LOST, Finding.BARRED) and not whole_seen:
                    self._note(place, text)
        if publications and not whole_seen and not unknown:
            self._note(PUBLICATIONS, "no published save is whole; nothing can be resumed from")

    def _started_now(self, attempt: str) -> Optional[Started]:
        """What an execution said of itself, which it may have done only after its folder was looked at."""
        if attempt not in self._started:
            try:
                started = read_started(self._store, attempt)
            except MalformedDocument:
                return None  # It is reported at its own place.
            if started is None:
                return None
            self._started[attempt] = started
        return self._started[attempt]

    def _is_there(self, folder: str, name: str) -> bool:
        """Whether a name is there, listed or not: writers may be at work, and no listing is a snapshot."""
        try:
            self._store.ledger(folder).read(name)
        except Absent:
            return False
        return True

    def _attempts(self, parent: str) -> List[str]:
        attempts: List[str] = []
        with self._reporting(parent):
            for name in self._store.folders(parent):
                try:
                    split_attempt(name)
                    attempts.append(name)
                except MalformedName as error:
                    self._fault(f"{parent}/{name}", str(error))
        return attempts

    def _names(self, folder: str) -> List[str]:
        """The names of a ledger; what lies there and can be none is a fault."""
        with self._reporting(folder):
            ledger = self._store.ledger(folder)
            for name in ledger.strangers():
                self._fault(f"{folder}/{name}", "it is no regular file, and a ledger holds nothing else; move it away")
            return ledger.names()
        return []

    @contextmanager
    def _reporting(self, place: str) -> Iterator[None]:
        try:
            yield
        except DispatchError as error:
            self._fault(place, str(error))

    def _fault(self, place: str, text: str) -> None:
        folder = place.rpartition("/")[0]
        self._counts[folder] = self._counts.get(folder, 0) + 1
        if self._counts[folder] <= MOST_FAULTS_OF_A_FOLDER:
            self._found.append(Fault(place, text))

    def _tell_the_rest(self) -> None:
        for folder, count in self._counts.items():
            if count > MOST_FAULTS_OF_A_FOLDER:
                self._found.append(Fault(folder, f"{count - MOST_FAULTS_OF_A_FOLDER:,} more faults there are not told"))

    def _note(self, place: str, text: str) -> None:
        self._found.append(Fault(place, text, Severity.NOTE))
