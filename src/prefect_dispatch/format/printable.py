"""Printable text: what any log, terminal and journal can hold, whatever it came from."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write control characters, line ends and lone surrogates as escapes, so that text stays one harmless line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
