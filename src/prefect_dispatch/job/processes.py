"""Processes: which ones belong to an execution, read from ``/proc``, and how they are ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from prefect_dispatch.format.contract import ATTEMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Dict, Iterator, List, Set, Tuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ROUND = 0.01
"""Seconds between two rounds of killing: time for the killed to go and for late forks to show."""
_READ = 16 * 1024
"""Bytes of one read: most files of ``/proc`` fit in."""
_CHASES = 50
"""Quick looks at one's own children after each look at everything: what forks all the time is caught by being quick."""


def hold_standard_descriptors() -> None:
    """Open what was handed over closed, so that no file of ours or of the program gets the number of a standard one."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null == descriptor:
                os.set_inheritable(null, True)
            else:
                os.dup2(null, descriptor)
                os.close(null)


def become_subreaper() -> None:
    """Have orphaned descendants of this process become its children, so that none escapes (prctl(2), Linux 3.4)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def go_on_after_parent() -> None:
    """Have the kernel set this process going, if it was stopped, when its parent is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone; end at once if it went before the kernel was told.

    Args:
        parent: the pid of the process that forked this one.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def kill_all(
    attempt: str, spared: Collection[int], within: float, idle: Callable[[float], None]
) -> Tuple[Set[int], List[int]]:
    """Kill every descendant of this process and every process that carries the attempt in its environment.

    For a subreaper one empty look at ``/proc`` proves nothing: a process that keeps forking and exiting is never where
    one looks. But its child comes to the subreaper before it is gone itself, so nothing is left only when waitpid(2)
    says that there are no children.

    Args:
        attempt: the execution's token.
        spared: processes that carry the attempt or descend from this one and are not the program's.
        within: seconds after which it gives up; only a process stuck in the kernel should survive that long.
        idle: waits for about that many seconds and reaps; called between two looks.

    Returns:
        What was killed, and what was still there at the end, normally nothing; 0 stands for what could not be seen.
    """
    give_up = time.monotonic() + within
    killed: Set[int] = set()
    while True:
        descendants, carriers = _look(attempt, spared)
        _kill(descendants, carriers)
        killed |= descendants | carriers
        for _ in range(_CHASES):
            idle(0)
            children = _children(spared)
            if not children:
                break
            _kill(children, ())
            killed |= children
        if not descendants and not carriers and not has_children(spared):
            return killed, []
        if time.monotonic() >= give_up:
            return killed, sorted(descendants | carriers or _children(spared) or {0})
        idle(_ROUND)


def listeners(number: int, leader: int, roots: Collection[int], attempt: str, spared: Collection[int]) -> Set[int]:
    """Whom of a program a notice is for: those who have a handler for it.

    A shell or a launcher that has none would be ended by the signal, and the program that it holds with it. Those in
    the leader's own group come first. SIGUSR1 and SIGUSR2, which mean nothing to anybody who does not ask for them, go
    to all others too where nobody in the group listens: launchers such as torchrun start their workers in sessions of
    their own and do not pass these on.

    Args:
        number: the signal.
        leader: the program's first process.
        roots: processes whose descendants are the program's.
        attempt: the execution's token.
        spared: processes that are not the program's.

    Returns:
        Their pids; empty where nobody has a handler, or none that can be seen.
    """
    parents = dict(_parents())
    children = _children_of(parents)
    found = _below(roots, children, spared)
    if number in (signal.SIGUSR1, signal.SIGUSR2):
        carriers = {pid for pid in parents if pid not in spared and pid not in roots and _carries(pid, attempt)}
        found |= carriers | _below(carriers, children, spared)
    listening = {pid for pid in found if _catches(pid, number)}
    return {pid for pid in listening if _group(pid) == leader} or (
        listening if number in (signal.SIGUSR1, signal.SIGUSR2) else set()
    )


def is_anything_left(attempt: str, spared: Collection[int]) -> bool:
    """Whether a subreaper has children, or any process carries the attempt in its environment.

    Every descendant of a subreaper is below a child of its, so where it has none, its descendants need no look at the
    whole of ``/proc``; that look is most of what the end of a program costs.
    """
    return has_children(spared) or any(
        pid not in spared and _carries(pid, attempt) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
    )


def has_children(spared: Collection[int] = ()) -> bool:
    """Whether this process has children, ended ones that nobody reaped included, beside the spared ones."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    seen = _children(())
    return not seen or not seen <= set(spared)


def children_now() -> Set[int]:
    """The children of this process."""
    return _children(())


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


def _look(attempt: str, spared: Collection[int]) -> Tuple[Set[int], Set[int]]:
    """The descendants of this process, and who else belongs to the execution by its environment, with descendants."""
    parents = dict(_parents())
    children = _children_of(parents)
    descendants = _below({os.getpid()}, children, spared)
    carriers = {pid for pid in parents if pid not in spared and _carries(pid, attempt)}
    carriers |= _below(carriers, children, spared)
    return descendants, carriers - descendants - {os.getpid()}


def _children_of(parents: Dict[int, int]) -> Dict[int, List[int]]:
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    return children


def _below(roots: Collection[int], children: Dict[int, List[int]], spared: Collection[int]) -> Set[int]:
    found: Set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found and child not in spared:
                found.add(child)
                pending.append(child)
    return found


def _children(spared: Collection[int]) -> Set[int]:
    own = os.getpid()
    try:
        # By thread, since a child belongs to the thread that forked it; far quicker than a look at all of /proc.
        texts = [_read_all(f"/proc/self/task/{thread}/children") for thread in os.listdir("/proc/self/task")]
        found = {int(pid) for text in texts for pid in text.split()}
    except OSError:  # Only a kernel with CONFIG_PROC_CHILDREN has these files.
        found = {pid for pid, parent in _parents() if parent == own}
    return found - set(spared)


def _kill(descendants: Collection[int], others: Collection[int]) -> None:
    """Kill processes; descendants with their whole groups.

    The kernel lets no fork escape a signal to a group, so this ends what forks faster than one can look. A descendant's
    group has nobody else in it, since the program is in a session of its own; for other processes nobody knows that.
    """
    for pid in descendants:
        try:
            group = os.getpgid(pid)
            if group != os.getpgrp():
                os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    for pid in (*descendants, *others):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


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


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and its parent has not noticed."""
    return _state(pid) == b"Z"


def has_ended(pid: int) -> bool:
    """Whether a process has ended, whoever has noticed that."""
    return _state(pid) in (b"Z", b"X", b"")


def _state(pid: int) -> bytes:
    """The letter of a process's state (proc_pid_stat(5)); empty where there is none."""
    stat = _read(f"/proc/{pid}/stat")
    return stat[stat.rfind(b")") + 2 :][:1]


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, by the mask in proc_pid_status(5)."""
    _, found, rest = _read(f"/proc/{pid}/status").partition(b"\nSigCgt:")
    return bool(found) and bool(int(rest.split(None, 1)[0], 16) >> (number - 1) & 1)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return 0


def _carries(pid: int, attempt: str) -> bool:
    return f"{ATTEMPT}={attempt}".encode("ascii") in _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    try:
        return _read_all(path)
    except OSError:
        return b""


def _read_all(path: str) -> bytes:
    # As open(2) and read(2) alone: a file object doubles the time of a look at all processes, which each end waits for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _READ)
        piece = data
        while piece:
            piece = os.read(descriptor, _READ)
            data += piece
        return data
    finally:
        os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")
