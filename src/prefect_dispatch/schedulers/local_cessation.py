"""The local cessation signal: whether anything of an object lives on this machine, as ``/proc`` has it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from prefect_dispatch.format.contract import ATTEMPT
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.schedulers.local_identity import is_alive, namespace
from prefect_dispatch.schedulers.local_records import ObjectFolder, Record, boot_id, read_record

BETWEEN_LOOKS_SECONDS = 0.05
"""Between the two looks that must both find nothing: a listing of ``/proc`` is no snapshot."""
MOST_NAMED = 5
"""So many processes are named in an answer."""
_PROC = Path("/proc")


class Untold(Exception):
    """Why it cannot be told, in words for people."""


@dataclass(frozen=True)
class Process:
    """A living process, as one look saw it.

    Attributes:
        pid: its number.
        parent: its parent's.
        session: its session's.
        start_time: when it started, in clock ticks since boot.
        user: its real user's number.
    """

    pid: int
    parent: int
    session: int
    start_time: int
    user: int


class LocalCessation:
    """Asks ``/proc`` of the machine that the object ran on. It says ``unknown`` rather than guess.

    An object is gone when its launcher has recorded the wrapper's exit, by then the guardian has ended whatever the
    program left, and two looks find no process that is the launcher, is in its session, carries the attempt or the
    submission, or descends from one that does. It cannot be told from another host, boot, PID or time namespace, where
    the launcher left no exit, by another user than the job's (but root), and where a process of the job's user that
    began after the object does not let its environment be read.

    Args:
        state_folder: the local scheduler's.
    """

    def __init__(self, state_folder: Path) -> None:
        self._objects = state_folder.absolute() / "objects"

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """See the port."""
        return await asyncio.to_thread(self._answer, ended)

    def _answer(self, ended: EndedObject) -> CessationAnswer:
        folder = ObjectFolder(self._objects / ended.object.token, ended.restart)
        try:
            launcher = _launcher(folder)
            if ended.nodes != (launcher["host"],):
                raise Untold(f"it ran on {', '.join(ended.nodes)}, and its launcher on {launcher['host']}")
            _require_here(launcher)
            for look in (1, 2):
                found = _living(launcher, ended.attempt, folder)
                if found:
                    named = ", ".join(map(str, found[:MOST_NAMED]))
                    return CessationAnswer("running", f"{len(found)} live on {launcher['host']}: {named}")
                if look == 1:
                    time.sleep(BETWEEN_LOOKS_SECONDS)
            if read_record(folder.exit) is None:
                raise Untold("its launcher left no exit, so what it started may live unseen")
        except Untold as why:
            return CessationAnswer("unknown", str(why))
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            return CessationAnswer("unknown", f"{type(error).__name__}: {error}")
        return CessationAnswer("ceased", f"nothing of it lives on {launcher['host']}")


def _launcher(folder: ObjectFolder) -> Record:
    launcher = read_record(folder.process)
    if launcher is None or "pid" not in launcher:
        raise Untold(f"{folder.path} tells of no launcher of restart {folder.restart}")
    return {**launcher, "owner": folder.process.stat().st_uid}


def _require_here(launcher: Record) -> None:
    """Find out that this process would see the object's own, and can compare when they started.

    Raises:
        Untold: it would not.
    """
    if launcher["host"] != socket.gethostname():
        raise Untold(f"it ran on {launcher['host']}; ask there")
    if launcher["boot"] != boot_id():
        raise Untold(f"{launcher['host']} was restarted since, or another machine has its name")
    if launcher.get("pid_namespace") != namespace("pid"):
        raise Untold("it ran in another PID namespace; ask there")
    if launcher.get("time_namespace") != namespace("time"):
        raise Untold("it ran in another time namespace; ask there")
    if os.readlink(_PROC / "self") != str(os.getpid()):
        raise Untold("/proc is of another PID namespace")
    if os.geteuid() not in (0, launcher["owner"]):
        raise Untold(f"it is of user {launcher['owner']}, whose processes may be hidden from user {os.geteuid()}")


def _living(launcher: Record, attempt: str, folder: ObjectFolder) -> list[int]:
    """The pids of all that lives of an object, ascending.

    Raises:
        Untold: nothing is seen to live, and a process does not show whose it is.
    """
    marks = {f"{ATTEMPT}={attempt}".encode(), os.fsencode(folder.submission)}
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    hidden: list[int] = []
    for process in _processes():
        children.setdefault(process.parent, []).append(process.pid)
        is_launcher = process.pid == launcher["pid"] and is_alive(launcher, folder.alive)
        if is_launcher or process.session == launcher.get("session"):
            found.add(process.pid)
            continue
        try:
            words = _words(process.pid, "environ") | _words(process.pid, "cmdline")
        except PermissionError:
            if process.user == launcher["owner"] and process.start_time >= launcher["start_time"]:
                hidden.append(process.pid)
            continue
        if words & marks:
            found.add(process.pid)
    pending = list(found)
    while pending:
        more = set(children.get(pending.pop(), ())) - found
        found |= more
        pending.extend(more)
    if not found and hidden:
        raise Untold(f"process {hidden[0]} is younger than it, and its environment cannot be read")
    return sorted(found)


def _processes() -> list[Process]:
    """All living processes; a zombie does not write any more."""
    seen = (_process(int(name)) for name in os.listdir(_PROC) if name.isdigit())
    return [process for process in seen if process is not None]


def _process(pid: int) -> Process | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
        status = (_PROC / str(pid) / "status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold anything (proc_pid_stat(5)).
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    user = next(line.split()[1] for line in status.splitlines() if line.startswith(b"Uid:"))
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), int(user))


def _words(pid: int, file: str) -> set[bytes]:
    try:
        return set((_PROC / str(pid) / file).read_bytes().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError):
        return set()
