"""Processes: which ones belong to an execution, read from ``/proc``, and how they are ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Callable, Collection, Dict, Iterator, List, Set

from prefect_dispatch.format.contract import ATTEMPT

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ROUND = 0.01
"""Seconds between two rounds of killing: time for the killed to go and for late forks to show."""


def become_subreaper() -> None:
    """Have orphaned descendants of this process become its children, so that none escapes (prctl(2), Linux 3.4)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_all(attempt: str, spared: Collection[int], within: float, idle: Callable[[float], None]) -> List[int]:
    """Kill every descendant of this process and every process that carries the attempt in its environment.

    Repeats until a look at ``/proc`` finds none, because what is killed may have forked meanwhile.

    Args:
        attempt: the execution's token.
        spared: processes that carry the attempt and are not the program's, such as the wrapper.
        within: seconds after which it gives up; only a process stuck in the kernel survives SIGKILL.
        idle: waits for about that many seconds and reaps; called between two looks.

    Returns:
        What was still there at the end, normally nothing.
    """
    give_up = time.monotonic() + within
    while True:
        left = owned(attempt, spared)
        if not left or time.monotonic() >= give_up:
            return sorted(left)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        idle(_ROUND)


def owned(attempt: str, spared: Collection[int] = ()) -> Set[int]:
    """The living processes of an execution: descendants of this process, and whoever carries the attempt."""
    parents = dict(_parents())
    found = {pid for pid in parents if pid not in spared and _carries(pid, attempt)}
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    pending = [os.getpid(), *found]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found and child not in spared:
                found.add(child)
                pending.append(child)
    return found - {os.getpid()}


def reap() -> Dict[int, int]:
    """Collect ended children; returns the wait status of each."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _parents() -> Iterator["tuple[int, int]"]:
    """Each living process with its parent; zombies are gone already."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        stat = _read(f"/proc/{entry}/stat")
        # proc_pid_stat(5): the command's name is in parentheses and may contain any byte, parentheses included.
        fields = stat[stat.rfind(b")") + 2 :].split()
        if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
            yield int(entry), int(fields[1])


def _carries(pid: int, attempt: str) -> bool:
    return f"{ATTEMPT}={attempt}".encode("ascii") in _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")
