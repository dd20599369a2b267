"""Watch: finds the saves in an execution's folder that are whole, by the sign that the submission names."""

from __future__ import annotations

import glob
import os
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Callable, Dict, Iterator, List, Optional, Protocol, Tuple

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.format.publication import MAX_STEP
from prefect_dispatch.format.saves import SaveKind, Saves

_STEP = re.compile(rb"[0-9]{1,19}\Z")
Fingerprint = Tuple[Tuple[str, int, int], ...]


@dataclass(frozen=True)
class Found:
    """A save that looks whole.

    Args:
        path: where it lies, relative to the execution's folder.
        step: the program's own step; None where the kind has none and the execution numbers its saves.
    """

    path: str
    step: Optional[int]


class Watch(Protocol):
    """Looks for whole saves of one kind."""

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the whole saves that are not known to be published as they are, the oldest first.

        Args:
            folder: the execution's folder, absolute.
            ended_well: nobody writes any more, and the program ended by its own will, so what lies there is finished.

        Raises:
            Unpublishable: a sign is there and says nothing that can be used.
            OSError: the folder cannot be read.
        """
        ...

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether the sign by which a save was found still says the same."""
        ...

    def published(self, found: Found) -> None:
        """Take note that a save was published, so that it is not found again until it changes."""
        ...


def watch_for(saves: Saves, clock: Callable[[], float] = time.monotonic) -> Optional[Watch]:
    """The watch for a source of saves; None where the program itself says what is whole."""
    if saves.kind is SaveKind.MARKER:
        return MarkerWatch(saves.marker)
    if saves.kind is SaveKind.SETTLE:
        return SettleWatch(saves.pattern, saves.settle, clock)
    return None


class MarkerWatch:
    """A marker file, whose text is the step, says that a save is whole.

    Args:
        marker: a file of this name marks its folder; a file whose name is a save's followed by it marks that save.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._published: Dict[str, int] = {}

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the marked saves, the lowest step first."""
        found = [Found(path, step) for path, step in self._marked(folder, "") if self._published.get(path) != step]
        return sorted(found, key=lambda save: (save.step, save.path))

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether the save's marker is there and names the same step."""
        place = os.path.join(folder, found.path)
        return found.step in (_step(os.path.join(place, self._marker)), _step(place + self._marker))

    def published(self, found: Found) -> None:
        """Take note of the step under which a path was published."""
        assert found.step is not None
        self._published[found.path] = found.step

    def _marked(self, folder: str, path: str) -> Iterator[Tuple[str, int]]:
        try:
            with os.scandir(os.path.join(folder, path)) as scan:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in scan}
        except FileNotFoundError:
            return  # The program's own rotation was faster.
        if not path and kinds.get(self._marker) is False:
            raise Unpublishable(
                f"marker {self._marker!r} marks the execution's own folder, which is no save; "
                "write each save to a file or folder of its own inside of it"
            )
        if kinds.get(self._marker) is False:
            step = _step(os.path.join(folder, path, self._marker))
            if step is not None:
                yield path, step
            return
        for name, is_folder in sorted(kinds.items()):
            place = os.path.join(path, name)
            if kinds.get(name + self._marker) is False:
                step = _step(os.path.join(folder, place + self._marker))
                if step is not None:
                    yield place, step
            elif is_folder:
                yield from self._marked(folder, place)


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
        self._published: Dict[str, Fingerprint] = {}

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the saves that have settled, the one that settled first at the front."""
        now = self._clock()
        seen: Dict[str, Tuple[Fingerprint, float]] = {}
        settled: List[Tuple[float, str]] = []
        for path in self._matches(folder):
            fingerprint = _fingerprint(os.path.join(folder, path))
            if not fingerprint:
                continue
            before = self._seen.get(path)
            since = before[1] if before is not None and before[0] == fingerprint else now
            seen[path] = (fingerprint, since)
            if self._published.get(path) != fingerprint and (ended_well or now - since >= self._settle_seconds):
                settled.append((since, path))
        self._seen = seen
        return [Found(path, None) for _, path in sorted(settled)]

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether nothing of the save has changed since it was looked at."""
        return _fingerprint(os.path.join(folder, found.path)) == self._seen[found.path][0]

    def published(self, found: Found) -> None:
        """Take note of what a path looked like when it was published."""
        self._published[found.path] = self._seen[found.path][0]

    def _matches(self, folder: str) -> List[str]:
        places = glob.glob(os.path.join(glob.escape(folder), self._pattern), recursive=True)
        kept: List[str] = []
        for path in sorted({os.path.relpath(place, folder) for place in places} - {"."}):
            # What lies in a save is part of it, no save of its own.
            if not any(path.startswith(save + "/") for save in kept):
                kept.append(path)
        return kept


def _step(marker: str) -> Optional[int]:
    """The step in a marker; None while there is no marker or nothing in it yet."""
    try:
        with open(marker, "rb") as file:
            text = file.read(64).strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    if not text:
        return None
    if not _STEP.match(text) or int(text) > MAX_STEP:
        shown = text.decode("utf-8", "backslashreplace")
        raise Unpublishable(f"marker {marker!r} says {shown!r}; write the save's step into it, in decimal")
    return int(text)


def _fingerprint(place: str) -> Fingerprint:
    """Every file's name, size and modification time; empty while files come and go, and for a folder without any."""
    try:
        if not os.path.isdir(place) or os.path.islink(place):
            status = os.lstat(place)
            return (("", status.st_size, status.st_mtime_ns),)
        return tuple(sorted(_files(place, "")))
    except FileNotFoundError:
        return ()


def _files(place: str, path: str) -> Iterator[Tuple[str, int, int]]:
    with os.scandir(os.path.join(place, path)) as scan:
        for entry in scan:
            inner = os.path.join(path, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from _files(place, inner)
            else:
                status = entry.stat(follow_symlinks=False)
                yield inner, status.st_size, status.st_mtime_ns
