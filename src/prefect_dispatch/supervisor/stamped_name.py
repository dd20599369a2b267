"""Names that end in a time: what a ledger without contents tells of when something was."""

from __future__ import annotations

from datetime import UTC, datetime

_DIGITS = 20


def stamped_name(prefix: str, at: datetime) -> str:
    """A prefix and a time, in whole seconds of 20 digits, so that names of one prefix are in the order of time."""
    return f"{prefix}{int(at.timestamp()):0{_DIGITS}d}"


def read_stamped_name(name: str) -> tuple[str, datetime] | None:
    """A name's prefix and its time; None for what is no such name, or names a time that there is not."""
    prefix, number = name[:-_DIGITS], name[-_DIGITS:]
    if len(number) != _DIGITS or not (number.isascii() and number.isdigit()):
        return None
    try:
        return prefix, datetime.fromtimestamp(int(number), UTC)
    except (OverflowError, ValueError, OSError):
        # The last one is what gmtime says of a year that its number has no room for.
        return None
