"""Finding what was broken on purpose, by simulation."""

from __future__ import annotations

from collections.abc import Iterable

from prefect_dispatch.testing.simulator import simulate

SEEDS = 600
"""How many seeds a mutation gets; the unmutated product passes many more in test_simulator.py."""


def first_failure(seeds: Iterable[int], supersedes: bool = True) -> tuple[int, str] | None:
    """The first seed that fails, and the check that saw it."""
    for seed in seeds:
        outcome = simulate(seed, supersedes)
        if outcome.violations:
            return seed, outcome.violations[0].check
    return None
