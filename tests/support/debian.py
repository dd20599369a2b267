"""Debian's packages that tests need, installed once on a machine where that takes no asking: as root, by apt-get."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

_LOCK = "dispatch-packages.lock"
"""In the machine's folder for passing files; ``slurm_cluster/up.sh`` takes too: of two apt-get at once one may fail."""
_PATIENCE = 600.0
_POLICY = Path("/usr/sbin/policy-rc.d")


def install(*packages: str, unless: Callable[[], object]) -> None:
    """Install packages, and have them start no server of their own. Whoever calls looks afterwards what is there.

    Args:
        packages: their names.
        unless: what is true where they are there already; asked again when it is this process's turn.
    """
    if unless() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with open(Path(tempfile.gettempdir()) / _LOCK, "w") as installing:
        fcntl.flock(installing, fcntl.LOCK_EX)
        if unless():
            return
        quiet = not _POLICY.exists()
        if quiet:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)
        try:
            _apt("update")
            _apt("install", "-y", *packages)
        finally:
            if quiet:
                _POLICY.unlink(missing_ok=True)


def _apt(*words: str) -> None:
    options = ("-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "APT::Install-Recommends=0")
    try:
        subprocess.run(
            ["apt-get", *options, *words],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        pass  # What is not there then is missed by whoever looks.
