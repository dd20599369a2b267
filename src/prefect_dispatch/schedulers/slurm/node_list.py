"""Lists of nodes as Slurm prints them: ``n[1-3,7],gpu01``."""

from __future__ import annotations

import itertools
import math
import re

NOBODY = frozenset({"", "(null)", "None assigned", "None", "N/A"})
MOST_NODES = 100_000
_PART = re.compile(r"([^,\[]*(?:\[[^\]]*\][^,\[]*)*)(?:,|\Z)")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The names in a list of nodes, in its order; the text itself where it is none that can be read.

    Args:
        text: as ``squeue`` and ``sacct`` print it.
    """
    if text.strip() in NOBODY:
        return ()
    names: list[str] = []
    rest = text.strip()
    while rest:
        found = _PART.match(rest)
        if not found:
            return (text,)
        part, rest = found.group(1), rest[found.end() :]
        if not part:
            continue
        pieces = _BRACKETS.split(part)
        choices = [[piece] if number % 2 == 0 else _numbers(piece) for number, piece in enumerate(pieces)]
        if any(not choice for choice in choices):
            return (text,)
        if len(names) + math.prod(map(len, choices)) > MOST_NODES:
            return (text,)
        names += ["".join(combination) for combination in itertools.product(*choices)]
    return tuple(names)


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.match(part)
        if not found:
            return []
        first, last = found.group(1), found.group(2) or found.group(1)
        if not 0 <= int(last) - int(first) < MOST_NODES:
            return []
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
