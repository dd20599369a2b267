"""The tally of many trials of one design, for a script and for a reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from overlap_trials.judge import Verdict

COLUMNS = ("wrong", "deleted", "torn", "lost")


def tally(verdicts: Sequence[tuple[int, Verdict]], seconds: float) -> dict[str, Any]:
    """Count trials, one count per trial and kind however often it happened in it.

    Args:
        verdicts: each trial's seed and verdict.
        seconds: how long they took together.
    """
    lost = [seed for seed, verdict in verdicts if verdict.wrong or verdict.deleted or verdict.torn]
    return {
        "trials": len(verdicts),
        "wrong": sum(bool(verdict.wrong) for _, verdict in verdicts),
        "deleted": sum(bool(verdict.deleted) for _, verdict in verdicts),
        "torn": sum(bool(verdict.torn) for _, verdict in verdicts),
        "lost": len(lost),
        "failed": sum(bool(verdict.failed) for _, verdict in verdicts),
        "resumes": sum(verdict.resumes for _, verdict in verdicts),
        "commits": sum(verdict.commits for _, verdict in verdicts),
        "seconds": round(seconds, 2),
        "first_lost_seeds": lost[:10],
    }


def table(tallies: dict[str, dict[str, Any]]) -> str:
    """The tallies as a table with rates; a zero with the bound that it proves.

    None of n says that at most about 3/n happen, with 95 % confidence: the rule of three (Hanley and Lippman-Hand, "If
    nothing goes wrong, is everything all right?", JAMA 249, 1983).
    """
    head = f"{'design':<18}{'trials':>7}" + "".join(f"{column:>16}" for column in COLUMNS)
    lines = [head, "-" * len(head)]
    for name, counts in tallies.items():
        trials = counts["trials"]
        cells = "".join(f"{_cell(counts[column], trials):>16}" for column in COLUMNS)
        lines.append(f"{name:<18}{trials:>7}{cells}")
    lines.append("")
    lines.append("lost: trials with any of the three. 0 (< p): 95 % upper bound by the rule of three, 3 / trials.")
    return "\n".join(lines)


def _cell(count: int, trials: int) -> str:
    if count:
        return f"{count} ({100 * count / trials:.1f} %)"
    bound = min(1.0, math.ceil(3e4 / trials) / 1e4)
    return f"0 (< {100 * bound:.2f} %)"
