"""Starting this package's own modules as processes, safe from what lies in the folder or environment they start in."""

from __future__ import annotations

import sys
from pathlib import Path

_RUN = "import sys; sys.path.insert(0, {place!r}); from {module} import main; sys.exit(main())"


def isolated(module: str) -> tuple[str, ...]:
    """The command that runs a module's ``main`` with the running interpreter, in isolated mode.

    The process sees neither the current folder nor ``PYTHON*`` variables, which it passes on untouched, nor the user's
    site-packages (Python's option ``-I``); its own package comes first.

    Args:
        module: a module of this package with a function ``main``.
    """
    place = str(Path(__file__).resolve().parents[2])
    return (sys.executable, "-I", "-c", _RUN.format(place=place, module=module))
