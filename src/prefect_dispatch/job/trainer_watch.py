"""The watch for saves of the Hugging Face Trainer: folders ``checkpoint-N`` below its ``output_dir``."""

from __future__ import annotations

import json
import os

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.publication import MAX_STEP
from prefect_dispatch.job.fingerprint import Fingerprint, fingerprint_of
from prefect_dispatch.job.tree import Entry, walk
from prefect_dispatch.job.watch import Found
from prefect_dispatch.job.whole_files import is_whole_file, read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

STATE = "trainer_state.json"
"""What the Trainer writes last, by a plain write."""
_FOLDER = pattern(r"checkpoint-(0|[1-9][0-9]{0,18})\Z")
_OTHER_RANK = pattern(r"rng_state_[0-9]+\.pth\Z")
"""Ranks do not wait for one another when they write theirs, so that one of these may come after the last sign."""
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_RANDOM = ("rng_state.pth", "rng_state_0.pth")
_LONGEST_TEXT = 256 * 1024 * 1024
"""A state has a line for each time that the training was logged."""


@dataclass(frozen=True)
class _Look:
    """What a look at one folder found.

    Args:
        seen: what its files looked like before they were judged.
        fault: why it is not whole; None where it is.
        ended: whether the Trainer's last sign for this step is there.
    """

    seen: Fingerprint
    fault: Optional[str]
    ended: bool


class TrainerWatch:
    """A save is whole when all its files are there and have their length, and the Trainer's state was written last.

    The Trainer syncs nothing and writes most files under their final names, so that each sign alone is there too early:
    a save that is written over an older one has a valid state from the start, and what its rotation has begun to delete
    may still have one. Measured with transformers 5.24.

    Args:
        only_model: whether the Trainer writes no optimiser (its ``save_only_model``).
    """

    def __init__(self, only_model: bool = False) -> None:
        self._only_model = only_model
        self._seen: Dict[str, Fingerprint] = {}
        self._done: Dict[str, Fingerprint] = {}
        self._newest: Tuple[int, str, str] = (-1, "", "")

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the whole saves, the lowest step first."""
        found: List[Found] = []
        seen: Dict[str, Fingerprint] = {}
        self._newest = (-1, "", "")
        for path, step in self._folders(folder):
            look = self._look_at(os.path.join(folder, path), step, self._done.get(path))
            if look.ended:
                self._newest = max(self._newest, (step, path, look.fault or ""))
            if look.fault is None:
                seen[path] = look.seen
                if self._done.get(path) != look.seen:
                    found.append(Found(path, step, True))
        self._seen = seen
        return sorted(found, key=lambda save: (save.step or 0, save.path))

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether the save's files look as they did when it was found whole."""
        return fingerprint_of(os.path.join(folder, found.path)) == self._seen.get(found.path)

    def done_with(self, found: Found) -> None:
        """Take note of what the save looked like."""
        self._done[found.path] = self._seen[found.path]

    def check_nothing_left(self) -> None:
        """The newest save that the Trainer has ended must be whole once its program has ended too."""
        _, path, fault = self._newest
        if fault:
            raise Unpublishable(f"save {path!r} has its {STATE} and is not whole: {fault}")

    def _folders(self, folder: str) -> List[Tuple[str, int]]:
        saves: List[Tuple[str, int]] = []

        def take(path: str, entries: List[Entry]) -> List[str]:
            below: List[str] = []
            for entry in entries:
                name = _FOLDER.match(entry.name)
                if not entry.is_folder:
                    continue
                if name and int(name.group(1)) <= MAX_STEP:
                    saves.append((os.path.join(path, entry.name), int(name.group(1))))
                else:
                    below.append(entry.name)
            return below

        walk(folder, take)
        return saves

    def _look_at(self, place: str, step: int, done: Optional[Fingerprint]) -> _Look:
        seen = fingerprint_of(place)
        if seen and seen == done:
            return _Look(seen, None, True)
        times = {name: mtime_ns for name, _, mtime_ns, _ in seen}
        try:
            if STATE not in times:
                return _Look(seen, f"it has no {STATE}", False)
            if _step_of(os.path.join(place, STATE)) != step:
                return _Look(seen, f"its {STATE} does not say that global_step is {step}", False)
            return _Look(seen, self._fault(place, times), True)
        except OSError as error:
            return _Look(seen, f"{error.filename}: {error.strerror}", STATE in times)

    def _fault(self, place: str, times: Dict[str, int]) -> Optional[str]:
        """What tells that a save is not whole, although its state is there; None where nothing does."""
        missing = self._missing(place, times)
        if missing:
            return missing
        for name, mtime_ns in times.items():
            if os.path.basename(name).startswith(".tmp"):
                return f"{name} is being written"
            if mtime_ns > times[STATE] and not _OTHER_RANK.match(name):
                return f"{name} was written after {STATE}, which the Trainer writes last"
        for name in times:
            if not is_whole_file(os.path.join(place, name)):
                return f"{name} is cut off"
        return None

    def _missing(self, place: str, times: Dict[str, int]) -> Optional[str]:
        if not any(name in times for name in _WEIGHTS):
            indexes = [name for name in _INDEXES if name in times]
            if not indexes:
                return "it has no weights"
            for shard in _shards_of(os.path.join(place, indexes[0])):
                if shard not in times:
                    return f"it has no {shard}"
        if self._only_model:
            return None
        instead = "; with save_only_model set saves.only_model to true, else use another kind of saves"
        for choice in (("optimizer.pt",), ("scheduler.pt",), _RANDOM):
            if not any(name in times for name in choice):
                return f"it has no {choice[0]}{instead}"
        return None


def _step_of(place: str) -> Optional[int]:
    text = read_regular(place, _LONGEST_TEXT)
    try:
        step = json.loads(text)["global_step"] if text else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _shards_of(place: str) -> List[str]:
    text = read_regular(place, _LONGEST_TEXT)
    try:
        return sorted({str(name) for name in json.loads(text or b"")["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [f"readable {os.path.basename(place)}"]
