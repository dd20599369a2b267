"""Time limits as Slurm reads and prints them (sbatch(1), ``--time``)."""

from __future__ import annotations

import re
from datetime import timedelta

from prefect_dispatch.errors import UsageError

_FORMS = (
    (re.compile(r"(\d+)"), ("minutes",)),
    (re.compile(r"(\d+):(\d+)"), ("minutes", "seconds")),
    (re.compile(r"(\d+):(\d+):(\d+)"), ("hours", "minutes", "seconds")),
    (re.compile(r"(\d+)-(\d+)"), ("days", "hours")),
    (re.compile(r"(\d+)-(\d+):(\d+)"), ("days", "hours", "minutes")),
    (re.compile(r"(\d+)-(\d+):(\d+):(\d+)"), ("days", "hours", "minutes", "seconds")),
)
NO_LIMIT = frozenset({"UNLIMITED", "INFINITE"})
NOT_KNOWN = frozenset({"", "PARTITION_LIMIT", "INVALID", "NONE", "NOT_SET", "N/A", "UNKNOWN"})


def read_time_limit(text: str) -> timedelta | None:
    """Read a time limit in one of Slurm's six forms: ``4:00`` is four minutes, and ``2-12`` two days and a half.

    Returns:
        The limit; None where there is none, or none is told (``UNLIMITED``, ``Partition_Limit``, ``INVALID``, empty).

    Raises:
        UsageError: it is no time limit.
    """
    word = text.strip()
    if word.upper() in NO_LIMIT | NOT_KNOWN:
        return None
    for form, units in _FORMS:
        found = form.fullmatch(word)
        if found:
            try:
                return timedelta(**{unit: int(part) for unit, part in zip(units, found.groups(), strict=True)})
            except OverflowError:
                break
    raise UsageError(
        f"{text!r} is no time limit of Slurm's; it has minutes, minutes:seconds, hours:minutes:seconds, days-hours, "
        "days-hours:minutes and days-hours:minutes:seconds"
    )


def write_time_limit(limit: timedelta) -> str:
    """Write a limit as ``days-hours:minutes:seconds``. Slurm counts in minutes and rounds up."""
    seconds = max(1, -(-limit // timedelta(seconds=1)))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
