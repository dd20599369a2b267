"""A laboratory for the local scheduler: jobs that are real processes, and the certainty that none is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local import LAUNCH_BOUND, LocalScheduler
from prefect_dispatch.schedulers.local_launch import LAUNCHER
from prefect_dispatch.schedulers.local_records import ObjectFolder, read_record
from prefect_dispatch.testing import plain_wrapper
from prefect_dispatch.testing.plain_request import plain_request

BOUND = timedelta(seconds=20)
"""How long the laboratory waits for anything before it fails."""
LONG = timedelta(seconds=60)
"""A linger that no test sees the end of."""
WRAPPER = (sys.executable, "-I", plain_wrapper.__file__)
MARK = "LABORATORY"
"""The variable by which every process of a laboratory is known."""

COUNTED = ("sh", "-c", "echo $DISPATCH_ATTEMPT >> runs")
"""A program that leaves a line for each time that it runs."""
STUBBORN = ("sh", "-c", "trap '' TERM; touch ready-$NAME; while :; do sleep 0.05; done")
"""A program that ignores SIGTERM and goes on for ever."""
OBEDIENT = ("sh", "-c", "trap 'touch noticed; exit 0' TERM; touch ready-$NAME; while :; do sleep 0.05; done")
"""A program that says that it got the notice, and exits."""


class LocalLaboratory:
    """A state folder, schedulers over it, and a look at what runs.

    Args:
        folder: an empty folder of the test's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_folder = folder / "state"
        self.workdir = folder / "work folder"
        self.workdir.mkdir()

    def scheduler(
        self, slots: int = 1, linger: timedelta = LONG, launch_bound: timedelta = LAUNCH_BOUND
    ) -> LocalScheduler:
        """A scheduler over the state folder, as one process has it, with the plain wrapper."""
        return LocalScheduler(self.state_folder, slots, linger, WRAPPER, launch_bound=launch_bound)

    def request(
        self,
        *command: str,
        name: str = "a",
        setup: tuple[str, ...] = (),
        resources: Resources | None = None,
        log: Path | None = None,
        token: str | None = None,
    ) -> SubmissionRequest:
        """A request for a job in this laboratory, which finds its name in ``NAME``."""
        environment = {"NAME": name, MARK: str(self.folder)}
        return plain_request(
            self.workdir, *command, setup=setup, environment=environment, resources=resources, log=log, token=token
        )

    def records(self, object: ObjectRef) -> ObjectFolder:
        """The records of an object."""
        return ObjectFolder(self.state_folder / "objects" / object.token)

    def launcher(self, object: ObjectRef) -> int:
        """The pid of an object's launcher, as its record has it."""
        return int((read_record(self.records(object).process) or {})["pid"])

    def runs(self) -> list[str]:
        """The attempts of every ``COUNTED`` program that ran, in order."""
        path = self.workdir / "runs"
        return path.read_text().split() if path.exists() else []

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, without any call to a scheduler."""
        give_up = time.monotonic() + BOUND.total_seconds()
        while not condition():
            assert time.monotonic() < give_up, f"not within {BOUND}: {what}"
            await asyncio.sleep(0.01)

    async def ready(self, name: str = "a") -> None:
        """Wait until the program with this name runs and has its handlers."""
        await self.until(lambda: (self.workdir / f"ready-{name}").exists(), f"{name} is ready")

    async def until_state(self, scheduler: LocalScheduler, object: ObjectRef, state: ObjectState) -> Observation:
        """Observe an object until it is in this state."""
        give_up = time.monotonic() + BOUND.total_seconds()
        while (observation := await self.look(scheduler, object)).state is not state:
            assert time.monotonic() < give_up, f"not within {BOUND}: {object} is {state}; it is {observation}"
            await asyncio.sleep(0.01)
        return observation

    async def look(self, scheduler: LocalScheduler, object: ObjectRef) -> Observation:
        """Observe one object."""
        return (await scheduler.observe([object]))[object]

    def started(self) -> list[int]:
        """Every living process that this laboratory started: its mark is in the environment of all of them."""
        mark = f"{MARK}={self.folder}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _words(pid, "environ")]

    def launchers(self, object: ObjectRef) -> list[int]:
        """The launchers of an object that live, whether they have a record or not."""
        path = str(self.records(object).path).encode()
        return [pid for pid in self.started() if path in _words(pid, "cmdline")]

    async def close(self) -> None:
        """End what still runs by killing its launchers, and fail unless that takes everything along."""

        def gone() -> bool:
            started = self.started()
            for pid in started:
                # Each time anew: a launcher that was just forking when it was killed has left another one.
                if str(LAUNCHER).encode() in _words(pid, "cmdline"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            return not started

        await self.until(gone, "everything started is gone")

    def environment(self) -> Mapping[str, str]:
        """The least environment of a process that counts as this laboratory's."""
        return {MARK: str(self.folder)}


def _words(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
