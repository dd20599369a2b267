"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Union

from prefect_dispatch.errors import UsageError

_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_ISO = re.compile(
    r"P(?:([0-9]+(?:\.[0-9]+)?)W)?(?:([0-9]+(?:\.[0-9]+)?)D)?"
    r"(?:T(?:([0-9]+(?:\.[0-9]+)?)H)?(?:([0-9]+(?:\.[0-9]+)?)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?\Z"
)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?i?B?)\Z")
_PREFIXES = "KMGTP"
MAX_DURATION = timedelta(days=36500)
"""A hundred years: what is longer is a slip of the pen."""


def parse_duration(value: Union[str, int, float, timedelta]) -> timedelta:
    """Read a duration: ``90``, ``"90s"``, ``"1h30min"``, ``"2d"``, or ISO 8601 ``"PT1H30M"``. A bare number is seconds.

    Raises:
        UsageError: it is none of these, negative, or longer than a hundred years.
    """
    seconds = _duration_seconds(value)
    if seconds is None or not 0 <= seconds <= MAX_DURATION.total_seconds():
        raise UsageError(f"duration {value!r} is not one; write 90, 90s, 30min, 4h, 1h30min, 2d or PT1H30M")
    return timedelta(seconds=seconds)


def parse_size(value: Union[str, int]) -> int:
    """Read a size in bytes: ``1024``, ``"512MiB"``, ``"16GiB"``, ``"2GB"`` (a power of ten).

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UsageError(f"size {value!r} is not one; write a number of bytes, 512MiB, 16GiB or 2GB")
    unit = match.group(2)
    base = 1024 if "i" in unit else 1000
    power = _PREFIXES.index(unit[0]) + 1 if unit and unit[0] in _PREFIXES else 0
    return int(float(match.group(1)) * base**power)


def describe_duration(duration: timedelta) -> str:
    """Write a duration for people, to the second from a minute on: ``0.4s``, ``95s``, ``2h 5min``."""
    seconds = duration.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 120:
        return f"{seconds:.0f}s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes}min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}min" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def _duration_seconds(value: Union[str, int, float, timedelta]) -> Union[float, None]:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    iso = _ISO.match(text)
    if iso is not None and any(iso.groups()) and not text.endswith("T"):
        scales = (604800.0, 86400.0, 3600.0, 60.0, 1.0)
        return sum(float(number) * scale for number, scale in zip(iso.groups(), scales) if number)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    return _unit_seconds(text)


def _unit_seconds(text: str) -> Union[float, None]:
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part.group(2) not in _UNITS:
            return None
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    return total if position else None
