"""The machine: what ratios depend on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import prefect_dispatch


def machine_facts(folder: Path) -> dict[str, Any]:
    """Cores, file system, versions and load, as the table shows them."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "kernel": platform.release(),
        "filesystem": filesystem_of(folder),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "prefect_dispatch": prefect_dispatch.__version__,
        "prefect": version("prefect"),
        "load_at_start": load(),
    }


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def filesystem_of(folder: Path) -> str:
    """The type of the file system that a folder lies on, by the kernel's table of mounts (proc_pid_mountinfo(5))."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine() or sys.platform
