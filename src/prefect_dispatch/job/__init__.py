"""What runs inside the job: the ``dispatch-job`` command and the same functions as a Python API.

Standard library only, Python 3.9 or newer. Nothing is imported before it is used: a wrapper starts on every node.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prefect_dispatch.job.commands import latest, publish

__all__ = ["latest", "publish"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from prefect_dispatch.job import commands

    return getattr(commands, name)
