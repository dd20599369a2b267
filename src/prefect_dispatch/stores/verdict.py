"""The verdict on one publication: whole, unusable, or forged."""

from __future__ import annotations

import enum

from prefect_dispatch.errors import Absent, MalformedDocument, MalformedName
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import MANIFEST_PREFIX_LENGTH, Manifest, check_manifest_name, manifest_prefix
from prefect_dispatch.format.names import decode_part, split_attempt
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PRUNED, barred_folder, manifests_folder, meta_folder, owner_of
from prefect_dispatch.stores.started import Started, read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional

    from prefect_dispatch.stores.port import Store


class Finding(enum.Enum):
    """What a look at one publication finds."""

    WHOLE = "whole"
    """A manifest holds: every file is there, with its size, and none was written again by itself."""
    LOST = "lost"
    """Its files are not those of its manifest any more; programs delete their own saves."""
    PRUNED = "pruned"
    """It was deleted on purpose."""
    BARRED = "barred"
    """Its files failed to reach the disk once."""
    UNPROVEN = "unproven"
    """What must stand beside a publication is missing or malformed."""
    FORGED = "forged"
    """No execution can have published it there; or the epoch is not below the one that looks."""


@dataclass(frozen=True)
class Verdict:
    """What a look at one publication found.

    Args:
        finding: in a word.
        why: in a sentence, where it cannot be taken.
        manifest: the manifest that holds, where the save is whole.
    """

    finding: Finding
    why: str = ""
    manifest: Optional[Manifest] = None


class Judge:
    """Looks at the publications of one root, once each; what one attempt wrote is read once.

    Args:
        store: the lineage's root.
        below: the epoch that looks; only lesser ones may be taken. None to take any.
        refuted: names of manifests that a copy of the save has shown not to hold, and why. Another of the same
            publication may.
    """

    def __init__(
        self, store: Store, below: Optional[Epoch] = None, refuted: Optional[Mapping[str, str]] = None
    ) -> None:
        self._store = store
        self._below = below
        self._refuted = refuted or {}
        self._pruned: Optional[FrozenSet[str]] = None
        self._started: Dict[str, Optional[Started]] = {}
        self._barred: Dict[str, FrozenSet[str]] = {}
        self._manifests: Dict[str, Dict[str, List[str]]] = {}

    def is_late(self, publication: Publication) -> bool:
        """Whether the epoch is not below the one that looks."""
        return self._below is not None and publication.epoch >= self._below

    def judge(self, publication: Publication) -> Verdict:
        """Look at a publication and at the files of its save.

        Raises:
            MalformedName: a name that the verdict depends on is malformed.
            UnknownFormat: a document is of a newer format.
            StoreError: it cannot be told.
        """
        dubious = self.judge_origin(publication)
        attempt = owner_of(publication.path)
        if dubious is not None or attempt is None:
            return dubious or Verdict(Finding.FORGED)
        if publication.name in self._read_pruned():
            return Verdict(Finding.PRUNED, "it was pruned")
        if publication.path in self._read_barred(attempt):
            return Verdict(Finding.BARRED, "its files failed to reach the disk once")
        return self._compare_manifests(attempt, publication)

    def judge_origin(self, publication: Publication) -> Optional[Verdict]:
        """Look whether an execution can have published it; its save is not looked at.

        Returns:
            None where one can; else why not.

        Raises:
            UnknownFormat: a document is of a newer format.
            StoreError: it cannot be told.
        """
        if self.is_late(publication):
            return Verdict(Finding.FORGED, f"its epoch is not below this execution's, {self._below}")
        attempt = owner_of(publication.path)
        if attempt is None:
            return Verdict(Finding.FORGED, "it lies in no execution's folder")
        if split_attempt(attempt)[1] != publication.epoch.restart:
            return Verdict(Finding.FORGED, f"attempt {attempt} is not of restart {publication.epoch.restart}")
        try:
            started = self._read_started(attempt)
        except MalformedDocument as error:
            return Verdict(Finding.UNPROVEN, str(error))
        if started is None:
            return Verdict(
                Finding.UNPROVEN, f"attempt {attempt} has no started.json; was {meta_folder(attempt)} removed?"
            )
        if started.epoch != publication.epoch:
            return Verdict(Finding.FORGED, f"attempt {attempt} is of epoch {started.epoch}")
        return None

    def _compare_manifests(self, attempt: str, publication: Publication) -> Verdict:
        whys: List[str] = []
        finding = Finding.UNPROVEN
        for name in self._read_manifests(attempt).get(manifest_prefix(publication), ()):
            try:
                manifest = read_manifest(self._store, attempt, name)
            except MalformedDocument as error:
                whys.append(str(error))
                continue
            if manifest.publication != publication:
                whys.append(f"manifest {name} is of {manifest.publication.name}")
            elif not manifest.files:
                whys.append(f"manifest {name} lists no file")
            else:
                difference = self._refuted.get(manifest.name) or self._store.difference(
                    publication.path, manifest.files
                )
                if difference is None:
                    return Verdict(Finding.WHOLE, manifest=manifest)
                finding = Finding.LOST
                whys.append(difference)
        return Verdict(finding, " and ".join(dict.fromkeys(whys)) or "it has no manifest")

    def _read_started(self, attempt: str) -> Optional[Started]:
        if attempt not in self._started:
            self._started[attempt] = read_started(self._store, attempt)
        return self._started[attempt]

    def _read_pruned(self) -> FrozenSet[str]:
        if self._pruned is None:
            names = self._store.ledger(PRUNED).names()
            self._pruned = frozenset(Publication.parse(name, PRUNED).name for name in names)
        return self._pruned

    def _read_barred(self, attempt: str) -> FrozenSet[str]:
        if attempt not in self._barred:
            self._barred[attempt] = read_barred(self._store, attempt)
        return self._barred[attempt]

    def _read_manifests(self, attempt: str) -> Dict[str, List[str]]:
        if attempt not in self._manifests:
            self._manifests[attempt] = group_manifests(self._store.ledger(manifests_folder(attempt)).names())
        return self._manifests[attempt]


def group_manifests(names: Iterable[str]) -> Dict[str, List[str]]:
    """The names of an execution's manifests by what those of one publication begin with.

    A job may have 100,000 of either: who looks for each among all never ends.

    Raises:
        MalformedName: one is not a manifest's.
    """
    groups: Dict[str, List[str]] = {}
    for name in names:
        groups.setdefault(check_manifest_name(name)[:MANIFEST_PREFIX_LENGTH], []).append(name)
    return groups


def read_manifest(store: Store, attempt: str, name: str) -> Manifest:
    """Read a manifest.

    Raises:
        MalformedDocument: it is gone, or not one.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    folder = manifests_folder(attempt)
    what = f"{folder}/{name}"
    try:
        data = store.ledger(folder).read(name)
    except Absent:
        raise MalformedDocument(f"{what} went away") from None
    return Manifest.decode(data, what)


def read_barred(store: Store, attempt: str) -> FrozenSet[str]:
    """The paths whose files failed to reach the disk in one execution.

    Raises:
        MalformedName: a name there is not a path's.
        StoreError: it cannot be told.
    """
    folder = barred_folder(attempt)
    try:
        return frozenset(decode_part(name) for name in store.ledger(folder).names())
    except MalformedName as error:
        raise MalformedName(f"{folder}: {error}; find out who wrote it, then move it away") from None
