"""When saves were written, by their manifests, within the bounds of one look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from prefect_dispatch.format.manifest import Manifest, manifest_prefix
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import manifests_folder, owner_of
from prefect_dispatch.stores.port import Store
from prefect_dispatch.stores.verdict import group_manifests
from prefect_dispatch.supervisor.root_look import MOST_NAMES, RootLook

MOST_SAVES = 2000
"""Saves that one look finds the times of, the newest."""
MOST_MANIFEST_BYTES = 4 * 1024 * 1024
"""The longest manifest that is read for the time of a save; 30,000 files fit."""
MOST_MANIFESTS_BYTES = 32 * 1024 * 1024
"""Bytes of manifests that one look reads, of the newest saves; it takes about a second."""


def find_save_times(look: RootLook, publications: Sequence[Publication]) -> dict[Publication, datetime]:
    """When the last file of each save was written, by its host's clock, where that is known.

    The newest are looked at first; what is beyond the bounds of what a look may read is left out.
    """
    manifests = _Manifests(look.root.store)
    found: dict[Publication, datetime] = {}
    for publication in publications[: -MOST_SAVES - 1 : -1]:
        written = look.ask(lambda: manifests.written(publication))  # noqa: B023
        at = look.moment(written)
        if at is not None:
            found[publication] = at
    return {publication: found[publication] for publication in publications if publication in found}


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
