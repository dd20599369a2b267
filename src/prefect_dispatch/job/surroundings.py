"""The surroundings of an execution, which its start notes."""

from __future__ import annotations

import os
import sys

from prefect_dispatch.format.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

_MOST_NAMES = 1000
_LONGEST_NAME = 100


def surroundings(environment: Mapping[str, str], now: float) -> Dict[str, Any]:
    """What a start notes of where it is. Of variables the names alone: a value may be a secret.

    Args:
        environment: the wrapper's own.
        now: seconds since 1970.
    """
    system = os.uname()
    names = [printable(name, _LONGEST_NAME) for name in sorted(environment)[:_MOST_NAMES]]
    return {
        "host": system.nodename,
        "pid": os.getpid(),
        "started_at": now,
        "environment": {
            "system": f"{system.sysname} {system.release} {system.machine}",
            "python": sys.version.split()[0],
            "cpus": len(os.sched_getaffinity(0)),
            "variables": names,
        },
    }
