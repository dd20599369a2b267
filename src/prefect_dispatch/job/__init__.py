"""What runs inside the job: the ``dispatch-job`` command and the same functions as a Python API.

Standard library only, Python 3.9 or newer. Nothing is imported before it is used: a wrapper starts on every node.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prefect_dispatch.job.asked import should_checkpoint
    from prefect_dispatch.job.commands import latest, publish
    from prefect_dispatch.job.parts import complete, completed, merge, remaining

__all__ = ["complete", "completed", "latest", "merge", "publish", "remaining", "should_checkpoint"]


_MODULES = {
    "complete": "parts",
    "completed": "parts",
    "latest": "commands",
    "merge": "parts",
    "publish": "commands",
    "remaining": "parts",
    "should_checkpoint": "asked",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
