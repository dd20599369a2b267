"""The setting in which a row is measured: where, how large, how often."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Scale(enum.Enum):
    """How large a row's work is."""

    FULL = "full"
    """As the targets are meant."""
    SMALL = "small"
    """Enough to see that the benchmark works."""


@dataclass(frozen=True)
class Setting:
    """Where, how large, how often.

    Args:
        row: the row's name.
        folder: an empty folder of the row's own, on the file system that is measured.
        scale: how large.
        repeat: how many pairs; None for as many as the row asks for.
        tell: says a line of progress.
    """

    row: str
    folder: Path
    scale: Scale
    repeat: int | None
    tell: Callable[[str], None]

    def choose(self, full: T, small: T) -> T:
        """One of two values, by the scale."""
        return full if self.scale is Scale.FULL else small

    def pairs(self, full: int, small: int = 2) -> int:
        """How many pairs to take, unless the command line says it."""
        return self.repeat or self.choose(full, small)
