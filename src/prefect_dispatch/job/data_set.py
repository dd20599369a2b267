"""The data set: the files and folders that a program has declared as part of each of its saves by message."""

from __future__ import annotations

import os
import stat

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import printable
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.job.fingerprint import fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Tuple

    from prefect_dispatch.format.messages import CheckpointFiles, CheckpointSave
    from prefect_dispatch.job.fingerprint import Fingerprint


@dataclass(frozen=True)
class Said:
    """A save by message, at the moment at which the program calls it whole.

    Args:
        save: the message.
        names: the files and folders that it is made of, relative to the execution's folder.
        seen: what they looked like.
    """

    save: CheckpointSave
    names: Tuple[str, ...]
    seen: Fingerprint


MOST_NAMES = 10_000
"""Files and folders that one data set may name. What lies in a folder does not count."""


class DataSet:
    """What was declared so far. It begins empty in each execution.

    Args:
        execution: whose it is.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._names: Dict[str, None] = {}

    @property
    def names(self) -> Tuple[str, ...]:
        """What belongs to it, relative to the execution's folder, in the order in which it was declared."""
        return tuple(self._names)

    def declare(self, message: CheckpointFiles) -> None:
        """Add what a message names; all of it or nothing.

        Raises:
            Unpublishable: one of them is not there, lies elsewhere or is something else, or they are too many.
        """
        names: Dict[str, None] = {} if message.reset else dict(self._names)
        for paths, is_kind, what in ((message.files, stat.S_ISREG, "file"), (message.dirs, stat.S_ISDIR, "folder")):
            for path in paths:
                inside = self._execution.inside(path.rstrip("/") or path)
                if inside is None:
                    raise Unpublishable(
                        f"{printable(path)!r} is not inside the execution's own folder {self._execution.folder!r}; "
                        "write it below DISPATCH_EXEC_DIR"
                    )
                try:
                    mode = os.lstat(os.path.join(self._execution.folder, inside)).st_mode
                except OSError as error:
                    raise Unpublishable(f"{printable(path)!r} cannot be seen: {error.strerror}") from None
                if not is_kind(mode):
                    raise Unpublishable(f"{printable(path)!r} is no {what}; name the real one")
                names[inside] = None
        if len(names) > MOST_NAMES:
            raise Unpublishable(
                f"the data set would have {len(names):,} names, and has at most {MOST_NAMES:,}; name folders instead"
            )
        self._names = names

    def fingerprint(self, names: Iterable[str]) -> Fingerprint:
        """What files and folders of the execution look like now; what cannot be seen is left out."""
        found: List[Tuple[str, int, int, int]] = []
        for name in names:
            try:
                files = fingerprint_of(os.path.join(self._execution.folder, name))
            except OSError:
                continue
            found.extend((f"{name}/{path}", size, mtime_ns, inode) for path, size, mtime_ns, inode in files)
        return tuple(sorted(found))
