"""A line of the table: a figure, its bare limit, and whether the target is met."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """What a figure has to be.

    Args:
        limit: the greatest figure that meets it, or the least with ``at_least``.
        unit: of the figure; ``×`` for a ratio to the bare limit.
        at_least: whether more is better.
    """

    limit: float
    unit: str
    at_least: bool = False

    def is_met_by(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}"


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        row: the row's name, as ``--only`` takes it.
        what: what was measured.
        ours: the median of ours, in ``unit``; None for what is not built yet.
        bare: the median of the bare limit, in the same unit; None where there is none.
        unit: of both.
        ratio: the median over the pairs of ours to bare; None without a bare limit.
        pairs: how many were taken.
        figure: what the target is held against: the ratio, a difference, or ours itself.
        target: what it has to be; None for what is only reported.
        note: what the bare limit is, and what else a reader must know.
    """

    row: str
    what: str
    ours: float | None = None
    bare: float | None = None
    unit: str = ""
    ratio: float | None = None
    pairs: int = 0
    figure: float | None = None
    target: Target | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing to hold against it."""
        if self.target is None or self.figure is None:
            return None
        return self.target.is_met_by(self.figure)

    def encode(self) -> dict[str, Any]:
        """As JSON has it."""
        target = None if self.target is None else str(self.target)
        return {**asdict(self), "target": target, "met": self.met}
