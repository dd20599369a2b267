"""One look at a checkpoint root that a job may have filled with anything: bounded, and never an error for who looks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from prefect_dispatch.errors import DispatchError, StoreUnreachable
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.lineage_root import LineageRoot

MOST_NAMES = 200_000
"""Names that a ledger of a root may have for a supervisor to list it: twice what a long job comes to, 100 MB."""
MOST_FAULTS = 100
"""Faults that are kept and told: a job that makes a new one each second must not fill memory and logs."""
MOST_FAULT = 2000
CLOCK_SKEW = timedelta(days=1)
"""How far a host's clock may be ahead of ours; what is later would stretch a picture until nothing can be seen."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class RootLook:
    """Asks a root, and keeps what could not be read.

    Args:
        root: the root.
        now: the time; no host's clock is believed to be far ahead of it.
    """

    def __init__(self, root: LineageRoot, now: Callable[[], datetime]) -> None:
        self.root = root
        self._now = now
        self._faults: dict[str, None] = {}
        self._was_there = False

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read so far, each once: a malformed name is never skipped in silence."""
        return tuple(self._faults)

    def ask(self, question: Callable[[], T]) -> T | None:
        """Ask one question; None where the root cannot tell."""
        try:
            # A root that is gone looks like an empty one, of which much that is false would follow.
            self.root.require()
            self._was_there = True
            return question()
        except DispatchError as error:
            self._note(error)
            return None

    def why_away(self, question: Callable[[], object]) -> str:
        """Why a question cannot be answered now and will be later; empty where it can, or where nobody knows of a root.

        A root that this process has never seen may be one that it cannot reach at all.
        """
        try:
            self.root.require()
            self._was_there = True
        except StoreUnreachable as error:
            return printable(str(error), MOST_FAULT) if self._was_there else ""
        except DispatchError:
            return ""
        try:
            question()
        except StoreUnreachable as error:
            return printable(str(error), MOST_FAULT)
        except DispatchError:
            pass
        return ""

    def moment(self, seconds: object) -> datetime | None:
        """A time of another host's clock, if it can be one."""
        value = number(seconds)
        if value is None or not 0 < value <= (self._now() + CLOCK_SKEW).timestamp():
            return None
        return datetime.fromtimestamp(value, UTC)

    def _note(self, error: DispatchError) -> None:
        text = printable(str(error), MOST_FAULT)
        if text not in self._faults and len(self._faults) < MOST_FAULTS:
            self._faults[text] = None
            _log.info("%s", text, extra={"action": "root.unreadable"})


def number(value: object) -> float | None:
    """A number of a document, if it is one that can be reckoned with."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
