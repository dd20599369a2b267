"""Records that somebody has copied: who acts on a copy would stop the original's job, and submit it a second time."""

from __future__ import annotations

import os

from prefect_dispatch.errors import ReadOnlyLineage
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.stores.opening import is_url, join_root


def copy_of(opened: Opened, lineage: str, location: str) -> ReadOnlyLineage | None:
    """Why a record may only be read: it is a copy of one that is there too. None where it is not known to be one.

    A record that was moved, or is seen under another path, is no copy.

    Args:
        opened: how the lineage was opened.
        lineage: the name that it is looked at by.
        location: where its record lies.
    """
    if opened.spec.lineage != lineage:
        return ReadOnlyLineage(f"{location} is a copy of lineage {opened.spec.lineage!r}; act on that one")
    original = join_root(opened.record_root, lineage)
    if is_url(original) or is_url(location) or original == location:
        return None
    try:
        same = os.path.samefile(os.path.join(original, "record.json"), os.path.join(location, "record.json"))
    except OSError:
        return None  # The original is not to be seen from here, so this one may have been moved.
    return None if same else ReadOnlyLineage(f"{location} is a copy of {original}; act on that one")
