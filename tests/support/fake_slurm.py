"""Commands with the names of Slurm's that print what a test wants, for what no real cluster can be made to say."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.schedulers.slurm.commands import Commands
from prefect_dispatch.schedulers.slurm.scheduler import Site, SlurmScheduler
from prefect_dispatch.schedulers.slurm.view import View

NAMES = ("squeue", "sacct", "sbatch", "scancel", "scontrol")
SCRIPT = """#!/bin/sh
place={place}
printf '%s\\n' "$*" >>"$place/{name}.calls"
if [ -e "$place/{name}.does" ]; then . "$place/{name}.does"; fi
if [ -e "$place/{name}.says" ]; then cat "$place/{name}.says"; fi
"""


class FakeSlurm:
    """A folder of such commands.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NAMES:
            path = folder / name
            path.write_text(SCRIPT.format(place=folder, name=name))
            path.chmod(0o755)

    def says(self, name: str, *lines: str) -> None:
        """Have a command print these lines."""
        (self.folder / f"{name}.says").write_text("".join(f"{line}\n" for line in lines))

    def does(self, name: str, script: str) -> None:
        """Have a command do this first."""
        (self.folder / f"{name}.does").write_text(script)

    def fails(self, name: str, complaint: str) -> None:
        """Have a command fail."""
        self.does(name, f"echo '{complaint}' >&2; exit 1\n")

    def works(self, name: str) -> None:
        """Have a command do nothing but print."""
        (self.folder / f"{name}.does").unlink(missing_ok=True)

    def calls(self, name: str) -> list[str]:
        """The arguments of each call of a command."""
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def scheduler(
        self,
        interval: timedelta = timedelta(milliseconds=100),
        within: timedelta = timedelta(seconds=10),
        prefix: tuple[str, ...] = (),
        accounting: bool = True,
        lag: timedelta = timedelta(minutes=2),
        history: timedelta = timedelta(days=30),
        clock: Callable[[], float] = time.monotonic,
    ) -> SlurmScheduler:
        """A scheduler over these commands, as a process of its own has it."""
        commands = Commands(prefix, within)
        site = Site(
            commands=commands,
            poll_interval=interval,
            log_folder=self.folder / "logs",
            accounting=accounting,
            accounting_lag=lag,
            history=history,
        )
        return SlurmScheduler(site, View(commands, interval, site.history, accounting), clock)


def queued(id: int, token: str, state: str = "RUNNING", restart: int = 0, exit: str = "0:0", stop: bool = False) -> str:
    """A line of ``squeue``'s."""
    comment = f"prefect-dispatch:{token}{':stop' if stop else ''}"
    node = "" if state == "PENDING" else "n1"
    return f"{id}|{state}|{restart}|{exit}|1796064509|1796064600|1:00:00|{node}|None|digits.g0n1.{token}|{comment}|"


def accounted(id: int, token: str, state: str, exit: str = "0:0", submit: int = 1796064500) -> str:
    """A line of ``sacct``'s."""
    end = "Unknown" if state in ("RUNNING", "PENDING") else str(submit + 100)
    return f"{id}|{state}|{exit}|{submit}|{submit + 9}|{end}|01:00:00|n1|digits.g0n1.{token}|prefect-dispatch:{token}"
