"""The design: how executions find, commit and rotate saves. What every design answers, and the exceptions of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prefect_dispatch.format.epoch import Epoch


@dataclass(frozen=True)
class Setting:
    """What an execution is told.

    Args:
        shelf: the folder that all executions of the trial share.
        epoch: its own place in the order.
        attempt: its own token.
        keep: how many saves the rotation keeps.
    """

    shelf: Path
    epoch: Epoch
    attempt: str
    keep: int


class Replaced(Exception):
    """The design itself noticed that this execution is not wanted any more."""


class Unresumable(Exception):
    """The design itself says that there are saves and that it can resume from none."""


class Design(Protocol):
    """One execution's way with saves; made in its own process.

    A design is a callable that takes the :class:`Setting` and returns this.
    """

    def begin(self) -> tuple[Path, int] | None:
        """Start, and say where the save to resume from lies and which step it is; None for a start from scratch.

        Raises:
            Replaced: it may not start any more.
            Unresumable: it will not start from scratch, and has nothing else.
        """
        ...

    def place(self, step: int) -> Path:
        """Where the save of a step is written."""
        ...

    def commit(self, step: int, committed: Callable[[], None]) -> None:
        """Make a save that was just written count, and rotate.

        Args:
            step: which.
            committed: called when the program is told that the save counts.
        """
        ...
