"""The workplace: a private folder of one execution on its own machine, where the root itself is no file system."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.folder import describe, open_folder, open_root
from prefect_dispatch.stores.layout import EXEC, META, TEMPORARY
from prefect_dispatch.stores.removal import remove_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, Sequence


def workplace_of(base: str, lineage: str, attempt: str) -> str:
    """Where an execution's workplace is.

    Args:
        base: the folder of all workplaces; empty for the one of temporary files.
        lineage: whose it is.
        attempt: its execution.
    """
    folder = base or os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(os.path.abspath(folder), f"dispatch-{lineage}-{attempt}")


def make_workplace(path: str) -> None:
    """Make a workplace for its user alone, or find one's own there.

    Raises:
        StoreUnreachable: it cannot be made, or is somebody else's.
    """
    try:
        reach("s3.workplace-above")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        reach("s3.workplace")
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        status = os.lstat(path)
    except OSError as error:
        raise StoreUnreachable(f"workplace {path} cannot be made: {describe(error)}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StoreUnreachable(
            f"workplace {path} is no private folder of this user; find out who made it, or set DISPATCH_WORKPLACE"
        )


@dataclass(frozen=True)
class Leftovers:
    """What an execution leaves in its workplace.

    Args:
        path: where it lies.
        count: how many files.
        size: their bytes.
    """

    path: str
    count: int
    size: int


def clear_workplace(
    path: str, attempt: str, kept: Mapping[str, Sequence[SavedFile]], extra: Iterable[str]
) -> Leftovers:
    """Remove what the store has by now from an execution's workplace; what it has not stays where it lies.

    Args:
        path: the workplace.
        attempt: whose it is.
        kept: the published saves by their paths, with their files. One that has changed since stays.
        extra: paths of files that are nothing without those, such as markers beside them.

    Returns:
        What is left; nothing where all could be removed, and then the workplace is gone too.
    """
    if not os.path.isdir(path):
        return Leftovers(path, 0, 0)
    with open_root(path) as root:
        remove_all(root, TEMPORARY)
        with suppress(OSError), open_folder(root, [META, attempt]) as own:
            remove_all(own, "resume")
        for save, files in kept.items():
            for file in files:
                _remove_unchanged(root, f"{save}/{file.path}" if file.path else save, file)
        for each in extra:
            folder, _, name = each.rpartition("/")
            with suppress(OSError), open_folder(root, folder.split("/")) as parent:
                os.unlink(name, dir_fd=parent)
    count = size = 0
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            count += 1
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
        with suppress(OSError):
            os.rmdir(folder)
    return Leftovers(os.path.join(path, EXEC, attempt), count, size)


def _remove_unchanged(root: int, path: str, file: SavedFile) -> None:
    folder, _, name = path.rpartition("/")
    with suppress(OSError), open_folder(root, folder.split("/")) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if file.link is not None or (status.st_size, status.st_mtime_ns) == (file.size, file.mtime_ns):
            os.unlink(name, dir_fd=parent)
