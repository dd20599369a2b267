"""A pointer names the save to resume from: a file that is checked, then replaced by a rename."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from overlap_trials.design import Setting
from overlap_trials.rotation import rotate

PREFIX = "global_step"
NAME = "latest"


@dataclass(frozen=True, order=True)
class Target:
    """What the pointer says.

    Args:
        epoch: the number of the writer's epoch.
        step: the step.
        path: the save, relative to the shared folder.
    """

    epoch: int
    step: int
    path: str


class Pointer:
    """See ``benchmarks/overlap.py``. Kinder than its model: older executions are told by their epoch.

    Args:
        setting: what the execution is told.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @property
    def _folder(self) -> Path:
        """The folder that this execution saves to."""
        return self._setting.shelf

    def begin(self) -> tuple[Path, int] | None:
        target = self._read()
        return None if target is None else (self._setting.shelf / target.path, target.step)

    def place(self, step: int) -> Path:
        return self._folder / f"{PREFIX}{step}"

    def commit(self, step: int, committed: Callable[[], None]) -> None:
        path = os.path.relpath(self.place(step), self._setting.shelf)
        mine = Target(self._setting.epoch.number, step, path)
        there = self._read()
        if there is not None and mine < there:
            return
        self._replace(mine)
        committed()
        rotate(self._folder, PREFIX, self._setting.keep, spared=self.place(step))

    def _read(self) -> Target | None:
        try:
            return Target(**json.loads((self._setting.shelf / NAME).read_text()))
        except FileNotFoundError:
            return None

    def _replace(self, target: Target) -> None:
        """Complete or not at all, and on the disk: a temporary file of this writer's own, then the rename."""
        temporary = self._setting.shelf / f".{NAME}.{self._setting.attempt}"
        with open(temporary, "w") as file:
            json.dump(vars(target), file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._setting.shelf / NAME)


class IsolatedPointer(Pointer):
    """The same with a folder per execution, so that nothing but the pointer itself can be lost."""

    @property
    def _folder(self) -> Path:
        return self._setting.shelf / "exec" / self._setting.attempt
