"""Starting this package's own modules as processes, safe from what lies in the folder or environment they start in."""

from __future__ import annotations

import sys
from pathlib import Path

_RUN = "import sys; sys.path.insert(0, {place!r}); from {module} import {function}; sys.exit({function}())"


def isolated(module: str, function: str = "main", *, libraries: bool = True) -> tuple[str, ...]:
    """The command that runs a function of a module with the running interpreter, in isolated mode.

    The process sees neither the current folder nor ``PYTHON*`` variables, which it passes on untouched, nor the user's
    site-packages (Python's option ``-I``); its own package comes first.

    Args:
        module: a module of this package.
        function: one of its functions, which takes nothing and returns an exit code or leaves with it.
        libraries: whether it finds other packages from its start on. To look for where they are is a third of the
            start of a Python, and the helper needs none but for a bucket, see :mod:`prefect_dispatch.stores.opening`.
    """
    place = str(Path(__file__).resolve().parents[2])
    options = ("-I",) if libraries else ("-I", "-S")
    return (sys.executable, *options, "-c", _RUN.format(place=place, module=module, function=function))
