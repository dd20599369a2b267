"""What an ``up`` says of itself, in a file of the user's: for ``down``, and for commands that need its server.

A process is a pid and its start time: a pid alone may be another's by now. That an ``up`` runs is told by a lock, which
its death lets go of, however it comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from prefect_dispatch.errors import UsageError
from prefect_dispatch.schedulers.local_identity import start_time
from prefect_dispatch.schedulers.local_records import boot_id
from prefect_dispatch.settings import state_folder

LOOK_SECONDS = 0.1


class Known(BaseModel):
    """A process, so that no other one is ever taken for it."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_time: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Known | None:
        """The process of a pid; None where there is none any more."""
        started = start_time(pid)
        return cls(pid=pid, start_time=started, boot=boot_id()) if started is not None else None

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self.boot == boot_id() and start_time(self.pid) == self.start_time

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            # What is opened here stays the same process between the look and the signal (pidfd_open(2)).
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.lives:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end."""
        give_up = time.monotonic() + seconds
        while self.lives:
            if time.monotonic() >= give_up:
                return False
            time.sleep(LOOK_SECONDS)
        return True


class StandingUp(BaseModel):
    """An ``up`` that runs.

    Attributes:
        up: its process.
        url: the API that it serves.
        own_server: whether it has started that server itself.
        children: the processes that it has started, the server last.
        ready: whether all is served.
    """

    model_config = ConfigDict(frozen=True)

    up: Known
    url: str
    own_server: bool
    children: tuple[Known, ...] = ()
    ready: bool = False

    def write(self) -> None:
        """Say so. Whoever reads finds this or what was there before, and never a part."""
        place = _place()
        new = place.with_suffix(".new")
        new.write_text(self.model_dump_json())
        new.replace(place)


def read_standing() -> StandingUp | None:
    """What the last ``up`` has said of itself, whether it lives or not; None for nothing that can be read."""
    try:
        document: Any = json.loads(_place().read_text())
        return StandingUp.model_validate(document)
    except (OSError, ValueError, ValidationError):
        return None


def forget_standing() -> None:
    """Take back what was said."""
    _place().unlink(missing_ok=True)


def running_up() -> StandingUp | None:
    """The ``up`` that runs for this user's state folder."""
    standing = read_standing()
    return standing if standing is not None and standing.up.lives else None


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Be the one ``up`` of this state folder.

    Raises:
        UsageError: there is another one; the text says which.
    """
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        other = running_up()
        who = f" as process {other.up.pid}, with {other.url}" if other is not None else ""
        raise UsageError(
            f"up runs already{who}, for the state folder {folder}; end it with prefect-dispatch down"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def end(processes: Sequence[Known], patience_seconds: float) -> list[Known]:
    """End processes side by side: ask, wait, then kill. Returns those that had to be killed."""
    for each in processes:
        each.send(signal.SIGTERM)
    give_up = time.monotonic() + patience_seconds
    killed = [each for each in processes if not each.ended_within(max(give_up - time.monotonic(), 0.0))]
    for each in killed:
        each.send(signal.SIGKILL)
    for each in killed:
        each.ended_within(patience_seconds)
    return killed


def children_of(pid: int) -> list[Known]:
    """The processes whose parent a process is."""
    found: list[Known] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_bytes()
            if int(stat[stat.rindex(b")") + 2 :].split()[1]) == pid:
                found += [known] if (known := Known.of(int(entry.name))) is not None else []
    return found


def _place() -> Path:
    return state_folder() / "up.json"
