"""This project's design: a folder per execution and append-only publication, by the helper's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from overlap_trials.design import Replaced, Setting, Unresumable
from overlap_trials.highest_step import PREFIX
from overlap_trials.rotation import rotate
from prefect_dispatch.errors import DuplicateExecution, UnusableCheckpoint
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.layout import exec_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


class AppendOnly:
    """See ``benchmarks/overlap.py``.

    Args:
        setting: what the execution is told.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._root = LineageRoot(PosixStore(setting.shelf))

    def begin(self) -> tuple[Path, int] | None:
        root, setting = self._root, self._setting
        root.prepare("", "overlap")
        try:
            root.claim(setting.epoch, setting.attempt, "", new_nonce())
        except DuplicateExecution as error:
            raise Replaced(str(error)) from error
        root.start(setting.epoch, setting.attempt, {})
        try:
            pin = root.pin(setting.epoch, setting.attempt, ResumeChoice())
        except UnusableCheckpoint as error:
            raise Unresumable(str(error)) from error
        if pin.path is None or pin.step is None:
            return None
        return Path(root.absolute(pin.path)), pin.step

    def place(self, step: int) -> Path:
        return Path(self._root.absolute(self._path(step)))

    def commit(self, step: int, committed: Callable[[], None]) -> None:
        """Rotate, then publish: a Trainer has rotated before anyone hears of its save."""
        rotate(self.place(step).parent, PREFIX, self._setting.keep)
        self._root.publish(self._setting.epoch, self._setting.attempt, self._path(step), step)
        committed()

    def _path(self, step: int) -> str:
        return f"{exec_folder(self._setting.attempt)}/{PREFIX}{step}"
