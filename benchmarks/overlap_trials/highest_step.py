"""The highest number wins: ``checkpoint-N`` in one folder that all executions share, as with a Trainer's output_dir."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from overlap_trials.design import Setting
from overlap_trials.rotation import numbered, rotate
from overlap_trials.saves import SIGN

PREFIX = "checkpoint-"


class HighestStep:
    """See ``benchmarks/overlap.py``. Kinder than its model: a folder that lacks its sign is passed over."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def begin(self) -> tuple[Path, int] | None:
        for step, place in reversed(numbered(self._setting.shelf, PREFIX)):
            if (place / SIGN).is_file():
                return place, step
        return None

    def place(self, step: int) -> Path:
        return self._setting.shelf / f"{PREFIX}{step}"

    def commit(self, step: int, committed: Callable[[], None]) -> None:
        committed()
        rotate(self._setting.shelf, PREFIX, self._setting.keep)
