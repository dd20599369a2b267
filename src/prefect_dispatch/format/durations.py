"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

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
_PART = pattern(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_ISO = pattern(
    r"P(?:([0-9]+(?:\.[0-9]+)?)W)?(?:([0-9]+(?:\.[0-9]+)?)D)?"
    r"(?:T(?:([0-9]+(?:\.[0-9]+)?)H)?(?:([0-9]+(?:\.[0-9]+)?)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?\Z"
)
_SIZE = pattern(r"([0-9]{1,19})(?:\.([0-9]{1,19}))?\s*(?:([KMGTP])(i?))?B?\Z")
_PREFIXES = "KMGTP"
MAX_SIZE = 2**63 - 1
MAX_DURATION = timedelta(days=36500)
"""A hundred years: what is longer is a slip of the pen."""


def parse_duration(value: Union[str, int, float, timedelta]) -> timedelta:
    """Read a duration: ``90``, ``"90s"``, ``"1h30min"``, ``"2d"``, or ISO 8601 ``"PT1H30M"``. A bare number is seconds.

    Raises:
        UsageError: it is none of these, negative, or longer than a hundred years.
    """
    if isinstance(value, timedelta) and timedelta(0) <= value <= MAX_DURATION:
        return value
    seconds = _duration_seconds(value)
    if seconds is None or not 0 <= seconds <= MAX_DURATION.total_seconds():
        raise UsageError(f"duration {shorten(value)} is not one; write 90, 90s, 30min, 4h, 1h30min, 2d or PT1H30M")
    return timedelta(seconds=seconds)


def parse_size(value: Union[str, int]) -> int:
    """Read a size in bytes: ``1024``, ``"512MiB"``, ``"16GiB"``, ``"2GB"`` (a power of ten).

    Raises:
        UsageError: it is none of these, negative, or more than 63 bits hold.
    """
    size = value if type(value) is int else _size_bytes(value) if isinstance(value, str) else None
    if size is None or not 0 <= size <= MAX_SIZE:
        raise UsageError(f"size {shorten(value)} is not one; write a number of bytes, 512MiB, 16GiB or 2GB")
    return size


def write_duration(duration: timedelta) -> str:
    """Write a duration so that :func:`parse_duration` reads the very same: seconds, to the microsecond."""
    whole, rest = divmod(duration, timedelta(seconds=1))
    fraction = f"{rest.microseconds:06d}".rstrip("0")
    return f"{whole}.{fraction}s" if fraction else f"{whole}s"


def describe_duration(duration: timedelta) -> str:
    """Write a duration for people, the more coarsely the longer it is: ``0.4s``, ``95s``, ``12min``, ``2h 5min``."""
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
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) <= MAX_DURATION.total_seconds() else None
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


def _size_bytes(text: str) -> Union[int, None]:
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    whole, fraction, prefix, binary = match.groups()
    power = _PREFIXES.index(prefix) + 1 if prefix else 0
    unit: int = (1024 if binary else 1000) ** power
    part = int(fraction) * unit // 10 ** len(fraction) if fraction else 0
    return int(whole) * unit + part


def _unit_seconds(text: str) -> Union[float, None]:
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part.group(2) not in _UNITS:
            return None
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    return total if position else None
