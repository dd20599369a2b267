"""The stage of one simulation: time and turns, chance, the trace, and what was violated."""

from __future__ import annotations

from collections import Counter
from random import Random

from prefect_dispatch.testing.simulator.kernel import Kernel
from prefect_dispatch.testing.simulator.outcome import Step, Violation
from prefect_dispatch.testing.simulator.setting import Setting

STALLS = (0.5, 5.0, 20.0, 40.0, 70.0, 130.0, 400.0)
"""How many seconds somebody may stand still: a full disk queue, a paused machine, a stopped process."""


class Stage:
    """What all parts of one simulation share.

    Args:
        random: makes every choice.
        setting: what the world is like.

    Attributes:
        kernel: whose turn it is.
        calm: whether faults are over.
        steps: the trace.
        happened: how often each kind of thing happened.
        violations: what did not hold.
    """

    def __init__(self, random: Random, setting: Setting) -> None:
        self.random = random
        self.setting = setting
        self.kernel = Kernel(random, setting.loyalty)
        self.calm = False
        self.steps: list[Step] = []
        self.happened: Counter[str] = Counter()
        self.violations: list[Violation] = []

    @property
    def moment(self) -> int:
        """The number of the last step, by which it can be told what came first."""
        return len(self.steps)

    def note(self, text: str) -> None:
        """Write a step of the present actor into the trace."""
        kernel = self.kernel
        self.steps.append(Step(len(self.steps) + 1, kernel.now, kernel.current.name, text))

    def happen(self, kind: str) -> None:
        """Count that something of a kind happened."""
        self.happened[kind] += 1

    def chance(self, rate: float) -> bool:
        """Whether something goes wrong here and now; never once it is calm."""
        return rate > 0.0 and not self.calm and self.random.random() < rate

    def pause(self) -> None:
        """Let others go first, perhaps for long."""
        if self.chance(self.setting.stall):
            self.happen("stall")
            self.kernel.sleep(self.random.choice(STALLS))
        else:
            self.kernel.park()

    def violate(self, check: str, text: str) -> None:
        """Write down that a guarantee did not hold. The simulation ends there."""
        self.violations.append(Violation(check, text, self.moment))
        self.kernel.stop()
