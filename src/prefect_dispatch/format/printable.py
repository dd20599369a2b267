"""Printable text: what any log, terminal and journal can hold, whatever it came from."""

from __future__ import annotations

_SHOWN = 100


def shorten(value: object) -> str:
    """The repr of a value that an error names, cut where it would fill the screen; always one line."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to write out a whole number of more than 4,300 digits.
        text = f"a {type(value).__name__} beyond reason"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def printable(text: str) -> str:
    """Write control characters, line ends and lone surrogates as escapes, so that text stays one harmless line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
