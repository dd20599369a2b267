"""What a simulation came to: its trace, what it violated, and how nasty the world was."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

_LONG_ZEROS = re.compile(r"(?<![0-9])0{8,}(?=[0-9])")
"""What a number of twenty digits begins with."""


class Step(NamedTuple):
    """One step of the trace: something that one actor did.

    Attributes:
        number: its place in the trace, from 1.
        at: seconds since the beginning, by no actor's clock.
        actor: who did it.
        text: what it was, and what came of it.
    """

    number: int
    at: float
    actor: str
    text: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        text = _LONG_ZEROS.sub("…", self.text)
        return f"{self.number:>6} {minutes:>4.0f}:{seconds:06.3f}  {self.actor:<14} {text}"


@dataclass(frozen=True)
class Violation:
    """A guarantee that did not hold.

    Attributes:
        check: the name of the check that saw it, which begins with the guarantee's number.
        text: what was seen.
        step: the step of the trace after which it was seen.
    """

    check: str
    text: str
    step: int

    def __str__(self) -> str:
        return f"after step {self.step}: {self.check}: {self.text}"


@dataclass(frozen=True)
class Outcome:
    """What a simulation came to.

    Attributes:
        seed: by which it can be run again, step by step the same.
        steps: what happened, in order.
        violations: the guarantees that did not hold; the first one ended the simulation.
        happened: how often each kind of thing happened, by its name.
        ended_as: how the lineage stood in the end: ``finished: succeeded`` or ``held: …``.
    """

    seed: int
    steps: tuple[Step, ...]
    violations: tuple[Violation, ...]
    happened: Counter[str] = field(default_factory=Counter)
    ended_as: str = ""

    @property
    def trace(self) -> str:
        """All steps, one a line, and the violations behind them."""
        return "\n".join([*map(str, self.steps), *map(str, self.violations), ""])
