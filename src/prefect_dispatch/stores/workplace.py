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
from prefect_dispatch.stores.layout import META, NOTICE_FILE, TEMPORARY
from prefect_dispatch.stores.removal import remove_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence


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
    path: str, attempt: str, kept: Mapping[str, Sequence[SavedFile]], markers: Mapping[str, str]
) -> Leftovers:
    """Remove what the store has by now from an execution's workplace; what it has not stays where it lies.

    Args:
        path: the workplace.
        attempt: whose it is.
        kept: the published saves by their paths, with their files. One that has changed since stays.
        markers: paths of files beside saves that tell that they are whole, with those of the saves. One whose save is
            not gone stays: it may tell of what was written there since.

    Returns:
        What is left; nothing where all could be removed, and then the workplace is gone too.
    """
    if not os.path.isdir(path):
        return Leftovers(path, 0, 0)
    with open_root(path) as root:
        remove_all(root, TEMPORARY)
        with suppress(OSError), open_folder(root, [META, attempt]) as own:
            remove_all(own, "resume")
            remove_all(own, NOTICE_FILE)
        for save, files in kept.items():
            for file in files:
                _remove_unchanged(root, f"{save}/{file.path}" if file.path else save, file)
        for marker, save in markers.items():
            if _holds_files(os.path.join(path, save)):
                continue
            folder, _, name = marker.rpartition("/")
            with suppress(OSError), open_folder(root, folder.split("/")) as parent:
                os.unlink(name, dir_fd=parent)
    count = size = 0
    places = []
    for folder, below, names in os.walk(path, topdown=False):
        # A link to a folder is among the folders.
        for name in (*names, *(each for each in below if os.path.islink(os.path.join(folder, each)))):
            count += 1
            places.append(folder)
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
        with suppress(OSError):
            os.rmdir(folder)
    return Leftovers(os.path.commonpath(places) if places else path, count, size)


def _holds_files(path: str) -> bool:
    """Whether a file is there, or a folder with one in it."""
    return os.path.islink(path) or os.path.isfile(path) or any(names for _, _, names in os.walk(path))


def _remove_unchanged(root: int, path: str, file: SavedFile) -> None:
    folder, _, name = path.rpartition("/")
    with suppress(OSError), open_folder(root, folder.split("/")) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if file.link is not None:
            unchanged = stat.S_ISLNK(status.st_mode) and os.readlink(name, dir_fd=parent) == file.link
        else:
            unchanged = (status.st_size, status.st_mtime_ns) == (file.size, file.mtime_ns)
        if unchanged:
            os.unlink(name, dir_fd=parent)
