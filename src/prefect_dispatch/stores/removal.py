"""Deleting below an open folder: nothing outside of it is touched, whatever is swapped for a link meanwhile."""

from __future__ import annotations

import errno
import os
import stat

from prefect_dispatch.format.manifest import MAX_DEPTH
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import open_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def newest_change(folder: int, name: str) -> float:
    """When anything of a file or folder changed last: its ctime, since a copy sets its files' mtimes back.

    What lies deeper than a save may be is left out.

    Args:
        folder: the descriptor of the folder that holds it.
        name: its name there.

    Returns:
        Seconds since 1970.

    Raises:
        OSError: it is gone, or cannot be looked at.
    """
    return _newest_change(folder, name, MAX_DEPTH + 1)


def remove_all(folder: int, name: str, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Delete a file, a link or a folder with all that is in it. Links are deleted, never followed.

    Every name is reached through an open folder, one part at a time. A folder that is not empty is moved up beside the
    one that is deleted first, so that however deep it is, two folders are open at once and none is reached by a path.
    A writer that is faster keeps its folder; so does whoever takes the permission away.

    Args:
        folder: the descriptor of the folder that holds it. What it holds is deleted through here and nowhere else; it
            should be one for temporary files, where a crash may leave parts under other names.
        name: its name there.
        go_on: asked before each name is deleted; to stop, answer no.

    Returns:
        Whether it is gone.
    """
    waiting = [name]
    emptied = True
    while waiting:
        if not go_on():
            return False
        each = waiting.pop()
        if not _remove_one(folder, each):
            emptied = _empty(folder, each, waiting, go_on) and _remove_one(folder, each) and emptied
    return emptied


def _empty(folder: int, name: str, waiting: List[str], go_on: Callable[[], bool]) -> bool:
    """Delete what lies in a folder; what is a folder in turn and not empty is moved up and waits."""
    try:
        with open_folder(folder, [name]) as inside:
            with os.scandir(inside) as scan:
                names = [entry.name for entry in scan]
            for each in names:
                if not go_on():
                    return False
                if not _remove_one(inside, each):
                    moved = f"{new_nonce()}.removed"
                    os.rename(each, moved, src_dir_fd=inside, dst_dir_fd=folder)
                    waiting.append(moved)
    except OSError as error:
        return error.errno in _GONE
    return True


def _remove_one(folder: int, name: str) -> bool:
    """Delete a file, a link or an empty folder. Answers whether it is gone."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _newest_change(folder: int, name: str, depth: int) -> float:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    newest = status.st_ctime
    if stat.S_ISDIR(status.st_mode) and depth > 0:
        with open_folder(folder, [name]) as inside:
            with os.scandir(inside) as scan:
                names = [entry.name for entry in scan]
            for each in names:
                newest = max(newest, _newest_change(inside, each, depth - 1))
    return newest
