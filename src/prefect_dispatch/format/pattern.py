"""A regular expression compiled when it is first used: compiling them all was a seventh of the helper's start."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AnyStr, Pattern


class _Uncompiled:
    """Stands for a compiled pattern until one of its methods is asked for."""

    def __init__(self, text: Any, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._text, self._flags)
        # From now on these are found without this function.
        for method in ("match", "fullmatch", "search", "split", "findall", "finditer", "sub"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """A pattern as :func:`re.compile` makes it, which costs nothing until it is used.

    Args:
        text: the expression, as text or bytes.
        flags: as for :func:`re.compile`.
    """
    uncompiled: Any = _Uncompiled(text, flags)
    return uncompiled  # type: ignore[no-any-return]
