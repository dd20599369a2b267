"""Small disks that a test mounts, fills and freezes, in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.crash.supervisors import Supervisors
from support.waiting import until

PATIENCE_SECONDS = 60.0


class Disks:
    """A mount namespace of its own, whose mounts nobody else sees and which end with it.

    Attributes:
        pid: a process in it.
    """

    def __init__(self, supervisors: Supervisors) -> None:
        self.supervisors = supervisors
        self.pid = supervisors.all[0].pid
        here = os.stat("/proc/self/ns/mnt").st_ino
        # What is mounted before that would be mounted for all of this machine.
        until(lambda: os.stat(f"/proc/{self.pid}/ns/mnt").st_ino != here, "the namespace is another one")

    def seen(self, path: Path) -> Path:
        """A path in the namespace, as others can look at it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", f"--wdns={os.getcwd()}", *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            **options,
        )

    def mount(self, *arguments: str) -> None:
        done = self.run("mount", *arguments)
        assert done.returncode == 0, done.stderr

    def small(self, folder: Path, size: str = "2m", names: int = 10_000) -> None:
        """Mount an empty disk of a limited size and number of names."""
        folder.mkdir(parents=True, exist_ok=True)
        self.mount("-t", "tmpfs", "-o", f"size={size},nr_inodes={names},mode=755", "tmpfs", str(folder))

    def fill(self, folder: Path) -> Path:
        """Take all the space of a disk; returns what takes it."""
        filler = self.seen(folder) / "filler"
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        return filler

    def freeze(self, folder: Path) -> None:
        """Make a folder read-only, whoever has it open."""
        self.mount("-o", "remount,ro", str(folder))

    def thaw(self, folder: Path) -> None:
        self.mount("-o", "remount,rw", str(folder))


def why_no_namespace() -> str | None:
    for needed in ("unshare", "nsenter", "mount"):
        if shutil.which(needed) is None:
            return f"{needed} is not installed"
    trial = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
    )
    return f"mounting takes root here: {trial.stderr.strip()}" if trial.returncode else None
