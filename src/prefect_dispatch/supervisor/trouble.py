"""A trouble that lasts: told when it begins, when its reason changes, and once when it is over."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]
"""Tells a person of what is being waited out."""


class Trouble:
    """What cannot be done for a while, looked at again and again. What stays the same is told once.

    Args:
        about: put before each text, such as a lineage's name.
    """

    def __init__(self, about: str = "") -> None:
        self._about = f"{about}: " if about else ""
        self._reason = ""

    @property
    def lasts(self) -> bool:
        """Whether it is not over."""
        return bool(self._reason)

    def note(self, reason: str, tell: Tell) -> None:
        """Take what the last look came to: why it cannot be done, or nothing where it was done."""
        known, self._reason = self._reason, reason
        if reason and reason != known:
            tell(f"{self._about}{reason}")
        elif known and not reason:
            tell(f"{self._about}this is over: {known}")

    def end(self, tell: Tell) -> None:
        """Take it for over, if it lasted."""
        self.note("", tell)
