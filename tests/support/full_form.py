"""Whether the long tests run in their full form; ``docs/testing.md`` tells which there are and what each takes."""

from __future__ import annotations

import os

VARIABLE = "DISPATCH_TESTS"


def is_full(asked: str) -> bool:
    """Read the variable's value: ``full``, or nothing for the form that CI runs.

    Raises:
        ValueError: it is something else.
    """
    if asked not in ("", "full"):
        raise ValueError(f"{VARIABLE} is {asked!r}; set it to full, or unset it")
    return asked == "full"


FULL = is_full(os.environ.get(VARIABLE, ""))
