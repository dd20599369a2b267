"""Leaving: what becomes of an execution's workplace at its end."""

from __future__ import annotations

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.printable import printable
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.workplace import clear_workplace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Sequence


def leave(workplace: str, attempt: str, saving: Saving) -> str:
    """Remove from a workplace what is published, and return a line that says what is left.

    Nothing is removed while it cannot be told what is published.
    """
    kept: Dict[str, Sequence[SavedFile]] = {}
    try:
        for manifest in saving.published():
            kept[manifest.source] = manifest.files
            kept[manifest.publication.path] = manifest.files
        markers = {f"{path}{saving.marker}": path for path in kept} if saving.marker else {}
        left = clear_workplace(workplace, attempt, kept, markers)
    except (DispatchError, OSError) as error:
        return f"workplace {workplace} stays as it is: {printable(str(error))}"
    if not left.count:
        return f"workplace {workplace} is removed; all that was in it is published"
    return (
        f"{left.count:,} files with {left.size:,} bytes that were not published stay below {left.path}; "
        "copy what you need, then remove it"
    )
