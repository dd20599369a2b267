"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "what was waited for", patience_seconds: float = 120.0) -> T:
    """Wait until a condition is true, and return what it answered.

    Args:
        condition: asked a hundred times a second.
        what: what it means, for the failure.
        patience_seconds: how long it may take.

    Raises:
        AssertionError: it took longer.
    """
    give_up = time.monotonic() + patience_seconds
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not within {patience_seconds:g} s: {what}"
        time.sleep(0.01)
    return found
