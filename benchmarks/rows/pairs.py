"""Pairs: ours and the bare limit in turn, so that whatever else the machine does meanwhile hits both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pairs:
    """What was taken, in seconds, each of ours beside the bare one that was taken right before or behind it."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def median_ours(self) -> float:
        return statistics.median(self.ours)

    @property
    def median_bare(self) -> float:
        return statistics.median(self.bare)

    @property
    def ratio(self) -> float:
        """The median of each pair's ratio."""
        return statistics.median(ours / bare for ours, bare in zip(self.ours, self.bare, strict=True))

    @property
    def difference(self) -> float:
        """The median of each pair's difference, in seconds."""
        return statistics.median(ours - bare for ours, bare in zip(self.ours, self.bare, strict=True))

    def __len__(self) -> int:
        return len(self.ours)


def take_pairs(ours: Callable[[int], object], bare: Callable[[int], object], count: int, warm_up: int = 1) -> Pairs:
    """Time both in turn, A B B A A B …, so that neither always comes behind the other.

    Args:
        ours: what is measured; gets the pair's number.
        bare: its bare limit; gets the same number.
        count: how many pairs.
        warm_up: how many pairs are run before and not counted.
    """
    taken = take_rounds((ours, bare), count, warm_up)
    return Pairs(*taken)


def take_rounds(
    works: Sequence[Callable[[int], object]], count: int, warm_up: int = 1
) -> tuple[tuple[float, ...], ...]:
    """Time several pieces of work in turn, A B C C B A A B …, and return the seconds of each.

    Args:
        works: what is measured; each gets the round's number, those of the warm-up among them.
        count: how many rounds.
        warm_up: how many rounds are run before and not counted.
    """
    times: list[list[float]] = [[] for _ in works]
    places = range(len(works))
    gc.collect()
    gc.disable()
    try:
        for number in range(-warm_up, count):
            for which in places if number % 2 else reversed(places):
                spent = seconds_of(works[which], number + warm_up)
                if number >= 0:
                    times[which].append(spent)
    finally:
        gc.enable()
    return tuple(tuple(each) for each in times)


def seconds_of(work: Callable[[int], object], number: int) -> float:
    """How long a piece of work takes; what it returns is dropped after the clock has stopped."""
    begin = time.perf_counter()
    result = work(number)
    spent = time.perf_counter() - begin
    del result
    return spent
