"""The tree of a program's folder: walked without following links, and not deeper than a save can lie."""

from __future__ import annotations

import errno
import os
from fnmatch import fnmatchcase

from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.manifest import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, FrozenSet, List, Set, Tuple

_CANNOT_HOLD_A_SAVE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES)
"""A folder that went away, became something else, has too long a path, or that its own program has closed."""


@dataclass(frozen=True)
class Entry:
    """One name of a folder.

    Args:
        name: the name.
        is_folder: whether it is a real folder, not a link to one.
        is_file: whether it is a real regular file, not a link to one.
    """

    name: str
    is_folder: bool
    is_file: bool


def list_folder(place: str) -> List[Entry]:
    """What lies in a folder, ordered by name.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(place) as scan:
        entries = [
            Entry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
            for entry in scan
        ]
    return sorted(entries, key=lambda entry: entry.name)


def walk(folder: str, take: Callable[[str, List[Entry]], List[str]]) -> None:
    """Go through a folder and those in it that the caller wants, however deep they are, without recursion.

    A folder further down that cannot be read, or that lies deeper than any save may, is left out.

    Args:
        folder: where to begin, absolute.
        take: gets a folder's path, relative to the first one, and its entries; returns the folders in it to go into.

    Raises:
        OSError: the folder itself cannot be read, or one further down fails for other reasons than its own.
    """
    waiting: List[Tuple[str, int]] = [("", 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            entries = list_folder(os.path.join(folder, path))
        except OSError as error:
            if not path or error.errno not in _CANNOT_HOLD_A_SAVE:
                raise
            continue
        below = take(path, entries)
        if depth <= MAX_DEPTH:
            waiting.extend((os.path.join(path, name), depth + 1) for name in reversed(below))


def find_matches(folder: str, pattern: str) -> List[str]:
    """The paths in a folder that match a glob; none that lies in another one, since that is part of a save.

    ``*``, ``?`` and ``[…]`` match within a name, ``**`` any number of folders. Names that begin with a dot are matched
    by parts that do, as in a shell. Links to folders are names like others and are not gone into.

    Raises:
        OSError: the folder cannot be read.
    """
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    found: List[str] = []
    wanted = {"": frozenset(_reached(parts, {0}))}

    def take(path: str, entries: List[Entry]) -> List[str]:
        below: List[str] = []
        for entry in entries:
            positions = _step_on(parts, wanted[path], entry.name)
            inner = os.path.join(path, entry.name)
            if len(parts) in positions:
                found.append(inner)
            elif entry.is_folder and positions:
                wanted[inner] = frozenset(positions)
                below.append(entry.name)
        return below

    walk(folder, take)
    return sorted(found)


def _reached(parts: Tuple[str, ...], positions: Set[int]) -> Set[int]:
    """All positions in a pattern that are reached without another name: ``**`` may stand for no folder at all."""
    reached = set(positions)
    for position in range(len(parts)):
        if position in reached and parts[position] == "**":
            reached.add(position + 1)
    return reached


def _step_on(parts: Tuple[str, ...], positions: FrozenSet[int], name: str) -> Set[int]:
    """The positions after one more name."""
    after: Set[int] = set()
    for position in positions:
        if position == len(parts):
            continue
        part = parts[position]
        if name.startswith(".") and not part.startswith("."):
            continue
        if part == "**":
            after.add(position)
        elif fnmatchcase(name, part):
            after.add(position + 1)
    return _reached(parts, after)
