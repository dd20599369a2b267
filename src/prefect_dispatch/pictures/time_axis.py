"""A time axis: round steps for any span, and durations in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_STEPS = (
    *(_SECOND * count for count in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_UNITS = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"))


@dataclass(frozen=True)
class AxisMark:
    """One labelled place of a time axis.

    Args:
        offset: how far it is from the axis's beginning.
        label: that distance in words.
    """

    offset: timedelta
    label: str


def axis_marks(span: timedelta, most: int = 8) -> tuple[AxisMark, ...]:
    """Divide a span into round steps, beginning at 0.

    Args:
        span: the axis's length.
        most: how many steps there may be; the smallest round step that needs no more is taken.
    """
    step = next((step for step in _STEPS if span <= step * most), None)
    if step is None:
        step = _STEPS[-1] * math.ceil(span / (_STEPS[-1] * most))
    return tuple(AxisMark(step * count, in_words(step * count)) for count in range(span // step + 1))


def in_words(duration: timedelta) -> str:
    """Say a duration in its two greatest units, such as ``6.2 s``, ``4 min 10 s`` or ``3 d``."""
    if duration < timedelta(0):
        return f"-{in_words(-duration)}"
    if duration < 10 * _SECOND:
        return f"{round(duration / _SECOND, 1):g} s"
    rest = timedelta(seconds=round(duration / _SECOND))
    parts = []
    for unit, name in _UNITS:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])
