"""A simulator: several supervisors, a scheduler, jobs, persons and clocks, whose every turn a seed decides."""

from __future__ import annotations

from prefect_dispatch.testing.simulator.outcome import Outcome, Step, Violation
from prefect_dispatch.testing.simulator.simulation import simulate

__all__ = ["Outcome", "Step", "Violation", "simulate"]
