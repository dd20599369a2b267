"""One kill of a crash test."""

from __future__ import annotations

from dataclasses import dataclass

SUPERVISOR = "supervisor"
ROLES = (SUPERVISOR, "1", "2")
"""Who is killed: the supervisor, or the job of the first or second submission."""


@dataclass(frozen=True)
class Kill:
    """One kill: who, where, and how often it is to come there first."""

    scenario: str
    role: str
    point: str
    time: int = 1

    def __str__(self) -> str:
        return f"{self.scenario}: {self.role} at {self.point}:{self.time}"
