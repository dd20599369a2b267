"""Watch: finds the saves in an execution's folder that are whole, by the sign that the submission names."""

from __future__ import annotations

import os
import stat
import time
from datetime import timedelta

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.manifest import SHORT_BYTES
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.publication import MAX_STEP
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.job.fingerprint import Fingerprint, fingerprint_of, last_change
from prefect_dispatch.job.tree import Entry, find_matches, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple, Union

    from prefect_dispatch.job.watch_port import Watch

_STEP = pattern(rb"[0-9]{1,19}\Z")
_DIGITS = pattern(r"([0-9]+)")


@dataclass(frozen=True)
class Found:
    """A save that looks whole.

    Args:
        path: where it lies, relative to the execution's folder.
        step: the program's own step; None where the kind has none and the execution numbers its saves.
        marked_inside: whether the sign is a file of the save itself, so that a save without it is whole no more.
    """

    path: str
    step: Optional[int]
    marked_inside: bool = False


def watch_for(saves: Saves, clock: Callable[[], float] = time.monotonic) -> Optional[Watch]:
    """The watch for a source of saves; None where the program itself says what is whole."""
    if saves.kind is SaveKind.MARKER:
        return MarkerWatch(saves.marker)
    if saves.kind is SaveKind.HUGGINGFACE:
        # It builds on what is here, and only its saves pay for it.
        from prefect_dispatch.job.trainer_watch import TrainerWatch

        return TrainerWatch(saves.only_model)
    if saves.kind is SaveKind.SETTLE:
        return SettleWatch(saves.pattern, saves.settle, clock)
    return None


@dataclass(frozen=True)
class _Mark:
    """What a marker says, and which writing of it said so: a marker that is written anew marks a new save."""

    step: int
    mtime_ns: int
    inode: int


class MarkerWatch:
    """A marker file, whose text is the step, says that a save is whole.

    Args:
        marker: a file of this name marks its folder; a file whose name is a save's followed by it marks that save.
            Only a regular file is a marker.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._seen: Dict[Found, _Mark] = {}
        self._empty: List[str] = []
        self._done: Dict[str, _Mark] = {}

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the marked saves, the lowest step first."""
        self._empty = []
        self._seen = self._marked(folder)
        found = [save for save, mark in self._seen.items() if self._done.get(save.path) != mark]
        return sorted(found, key=lambda save: (save.step or 0, save.path))

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether the save's marker is there, names the same step, and is the one that was looked at."""
        place = os.path.join(folder, found.path)
        marker = os.path.join(place, self._marker) if found.marked_inside else place + self._marker
        return _read_mark(marker) == self._seen[found]

    def done_with(self, found: Found) -> None:
        """Take note of what the marker of a path said."""
        self._done[found.path] = self._seen[found]

    def check_nothing_left(self) -> None:
        """An empty marker is one that is being written, but not any more when its program has ended."""
        if self._empty:
            raise Unpublishable(
                f"marker {self._empty[0]!r} is empty, so its save has no step; write the step into it, in decimal"
            )

    def _marked(self, folder: str) -> Dict[Found, _Mark]:
        marked: Dict[Found, _Mark] = {}

        def take(path: str, entries: List[Entry]) -> List[str]:
            """Note what is marked in one folder; returns the folders in it that are worth a look."""
            files = {entry.name for entry in entries if entry.is_file}
            if self._marker in files:
                if not path:
                    raise Unpublishable(
                        f"marker {self._marker!r} marks the execution's own folder, which is no save; "
                        "write each save to a file or folder of its own inside of it"
                    )
                mark = self._mark_of(os.path.join(folder, path, self._marker))
                if mark is not None:
                    marked[Found(path, mark.step, True)] = mark
                return []
            below = []
            for entry in entries:
                if entry.name + self._marker in files:
                    place = os.path.join(path, entry.name)
                    mark = self._mark_of(os.path.join(folder, place + self._marker))
                    if mark is not None:
                        marked[Found(place, mark.step)] = mark
                elif entry.is_folder:
                    below.append(entry.name)
            return below

        walk(folder, take)
        return marked

    def _mark_of(self, marker: str) -> Optional[_Mark]:
        mark = _read_mark(marker)
        if mark is None and os.path.isfile(marker):
            self._empty.append(marker)
        return mark


class SettleWatch:
    """A save is whole when nothing of it has changed for a while.

    Args:
        pattern: a glob, relative to the execution's folder, of the saves.
        settle: for how long nothing may have changed.
        clock: monotonic seconds.
    """

    def __init__(self, pattern: str, settle: timedelta, clock: Callable[[], float]) -> None:
        self._pattern = pattern
        self._settle_seconds = settle.total_seconds()
        self._clock = clock
        self._seen: Dict[str, Tuple[Fingerprint, float]] = {}
        self._done: Dict[str, Fingerprint] = {}

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the saves that have settled, the one that was written first at the front; see :meth:`_in_order`."""
        now = self._clock()
        seen: Dict[str, Tuple[Fingerprint, float]] = {}
        settled: List[str] = []
        for path in find_matches(folder, self._pattern):
            fingerprint = fingerprint_of(os.path.join(folder, path))
            if not fingerprint:
                continue
            before = self._seen.get(path)
            since = before[1] if before is not None and before[0] == fingerprint else now
            seen[path] = (fingerprint, since)
            if self._done.get(path) != fingerprint and (ended_well or now - since >= self._settle_seconds):
                settled.append(path)
        self._seen = seen
        return [Found(path, None) for path in self._in_order(settled)]

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether nothing of the save has changed since it was looked at."""
        return fingerprint_of(os.path.join(folder, found.path)) == self._seen[found.path][0]

    def _in_order(self, paths: List[str]) -> List[str]:
        """Saves in the order in which they were written, as far as it can be known.

        First by when each was first seen as it is now, which no step of the host's clock can turn round. What one look
        saw first is in the order of its last changes; but where names differ by their numbers alone, those that come to
        lie at these places are in the order of their numbers, unless one was published before: a name that is written
        anew says by its number nothing about the time.
        """
        ordered = sorted(
            paths, key=lambda path: (self._seen[path][1], last_change(self._seen[path][0]), _natural(path))
        )
        places: Dict[Tuple[float, Tuple[str, ...]], List[int]] = {}
        for place, path in enumerate(ordered):
            places.setdefault((self._seen[path][1], tuple(_DIGITS.split(path)[::2])), []).append(place)
        for alike in places.values():
            rivals = [ordered[place] for place in alike]
            if not any(path in self._done for path in rivals):
                for place, path in zip(alike, sorted(rivals, key=_natural)):
                    ordered[place] = path
        return ordered

    def check_nothing_left(self) -> None:
        """Whatever there was has settled by then."""

    def done_with(self, found: Found) -> None:
        """Take note of what a path looked like."""
        self._done[found.path] = self._seen[found.path][0]


def _read_mark(marker: str) -> Optional[_Mark]:
    """What a marker says; None while there is no marker or nothing in it yet."""
    try:
        descriptor = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        if os.path.lexists(marker) and stat.S_ISREG(os.lstat(marker).st_mode):
            raise
        return None
    try:
        status = os.fstat(descriptor)
        text = os.read(descriptor, SHORT_BYTES).strip() if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(descriptor)
    if not text:
        return None
    if status.st_size > SHORT_BYTES:
        raise Unpublishable(f"marker {marker!r} has {status.st_size} bytes; write the save's step into it, in decimal")
    if not _STEP.match(text) or int(text) > MAX_STEP:
        shown = text.decode("utf-8", "backslashreplace")
        raise Unpublishable(f"marker {marker!r} says {shown!r}; write the save's step into it, in decimal")
    return _Mark(int(text), status.st_mtime_ns, status.st_ino)


def _natural(path: str) -> List[Union[Tuple[str, int], str]]:
    """A path as people order it: what lies between digits as text, digits as numbers."""
    parts = _DIGITS.split(path)
    return [(text, int(digits)) for text, digits in zip(parts[::2], [*parts[1::2], "-1"])] + [path]
