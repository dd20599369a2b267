"""Printable text: what any log, terminal and journal can hold, whatever it came from."""

from __future__ import annotations

import reprlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_SHOWN = 100
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 4
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 2 * _SHOWN


def shorten(value: object) -> str:
    """The repr of a value that an error names, cut where it would fill the screen; always one line.

    No more of the value is written out than is shown: it may be as large as a document, and as deep as can be.
    """
    try:
        text = repr(value[: _SHOWN + 1]) if isinstance(value, str) else _SHORT.repr(value)
    except ValueError:
        # Python refuses to write out a whole number of more than 4,300 digits.
        text = f"a {type(value).__name__} beyond reason"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def printable(text: str, most: Optional[int] = None) -> str:
    """Write control characters, line ends and lone surrogates as escapes, so that text stays one harmless line.

    Args:
        text: anything.
        most: how many characters it may have; what is longer ends in ``…``.
    """
    shown = text if most is None else text[: most + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}…"
