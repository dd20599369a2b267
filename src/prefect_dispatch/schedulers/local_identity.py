"""Who a launcher is, and whether it lives: a lock that it holds as long as it lives, else what ``/proc`` says.

A pid is given out again, so a process is a pid, its start time and the boot. In another PID namespace its pid is
nobody's or another's (pid_namespaces(7)), and in another time namespace its start time is another one
(time_namespaces(7)). A lock (flock(2)) is the same for every process of this kernel, wherever it is.

Standard library only: the launcher itself uses this.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect_dispatch.failpoints import reach
from prefect_dispatch.schedulers.local_records import Record, boot_id, stamp


def identify(pid: int, locked: bool = False) -> Record:
    """A process's identity.

    Args:
        pid: the process.
        locked: whether it holds its lock.
    """
    namespaces = {"pid_namespace": namespace("pid"), "time_namespace": namespace("time")}
    own = {"pid": pid, "session": os.getsid(pid), "start_time": start_time(pid), "locked": locked}
    return {**own, **namespaces, **stamp()}


def hold_lock(path: Path) -> int | None:
    """Take a process's lock, which its death lets go of, however it comes.

    The descriptor is closed by execve(2), and whoever forks has to close it in the child: it must not outlive the
    process in another one.

    Returns:
        The descriptor to keep open; None where the file system has no locks.
    """
    reach("local.lifeline")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Whoever looks holds it for a moment, shared.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_alive(process: Mapping[str, Any], lock: Path) -> bool | None:
    """Whether a process runs; None where that cannot be told from here. A zombie does not run.

    Args:
        process: its identity.
        lock: the file that it holds a lock on, if it does.
    """
    if process["boot"] != boot_id():
        return False if process["host"] == socket.gethostname() else None
    held = _is_held(lock) if process.get("locked") else None
    if held is not None:
        return held
    if not (is_visible(process) and process.get("time_namespace") in (None, namespace("time"))):
        return None
    return bool(start_time(int(process["pid"])) == process["start_time"])


def is_visible(process: Mapping[str, Any]) -> bool:
    """Whether the pid of a process of this boot means the same here."""
    return process.get("pid_namespace") in (None, namespace("pid"))


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of proc_pid_stat(5)); None for none, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold spaces and parentheses itself.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _is_held(lock: Path) -> bool | None:
    """Whether somebody holds a lock for himself; None where there is no lock to ask."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def namespace(kind: str) -> str | None:
    """The kernel's name of a namespace that this process is in (namespaces(7)); None where there are none of a kind."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except FileNotFoundError:
        return None
