"""The guardian: a process between the wrapper and the program that leaves nothing of the program behind.

It lives in a session of its own, so that what is sent to the wrapper's group does not reach it, and is a child
subreaper, so that every orphan below it becomes its child. The wrapper's death shows as the end of a pipe. It talks in
single lines of text and hears single bytes, so that it needs no memory and no thread.

Wrapper and guardian watch each other: the death of either ends the program. When both are killed at the same moment,
the kernel kills the leader, and nobody is left to kill what else the program has started; only a cgroup, as schedulers
have them, ends that too.
"""

from __future__ import annotations

import os
import select
import signal
import time

from prefect_dispatch.failpoints import reach
from prefect_dispatch.job.processes import (
    become_subreaper,
    die_with_parent,
    go_on_after_parent,
    is_anything_left,
    kill_all,
    listeners,
    reap,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, NoReturn, Optional, Sequence, Set

KILL_WITHIN = 10.0
"""Seconds for which it tries to end what the program left; SIGKILL takes none, a hung file system may."""
CHILDREN_GRACE = 1.0
"""Seconds that children get after the leader's own end, so that a ``tee`` behind it can write its last lines."""
_POLL = 0.2
HEARD_WITHIN = 5.0
"""A signal that came to us so many seconds before the order to send it on was one to all processes."""
HEARD_SOON = 0.5
"""Seconds that a signal to all processes may take from the wrapper to us."""
_BYSTANDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""What would end a bystander, and is only noted."""


class Guardian:
    """The guardian's own side: runs in the forked process, never returns to the wrapper's code.

    Args:
        attempt: the execution's token.
        wrapper: the wrapper's process id; it is spared.
        orders: the pipe's end on which the wrapper's orders come, one byte each: a signal for the program's group, or
            SIGKILL for everything. Its end is the wrapper's death.
        reports: the pipe's end for ``started PID``, ``failed ERRNO TEXT``, ``clearing``, ``ended STATUS KILLED``,
            ``gone PID…``.
        signals_to_all: whether the wrapper's signal may be one to all processes of the job, as Slurm sends it. The
            program has it then, and would take a second one for impatience: it gets none.
    """

    def __init__(self, attempt: str, wrapper: int, orders: int, reports: int, signals_to_all: bool = False) -> None:
        self._attempt = attempt
        self._spared = {wrapper, os.getpid()}
        self._orders = orders
        self._reports = reports
        self._leader = 0
        self._status: Optional[int] = None
        self._kill = False
        self._signals_to_all = signals_to_all
        self._heard: Dict[int, float] = {}

    def run(self, command: Sequence[str], environment: Dict[str, str], output: int) -> NoReturn:
        """Start the program with ``output`` as its standard output, watch it to its end, and exit."""
        code = 1
        try:
            os.setsid()
            become_subreaper()
            # The end of the pipe, which is the wrapper's death, is nothing to a process that stands still.
            go_on_after_parent()
            wake = _wake_on_signal(self._hear)
            self._start(command, environment, output)
            _let_go_of_all_but(self._orders, self._reports, *wake)
            if self._leader:
                self._clear(wake[0], self._watch(wake[0]))
            code = 0
        except Exception as error:
            self._report(f"failed {_describe(error)}")
        finally:
            os._exit(code)

    def _start(self, command: Sequence[str], environment: Dict[str, str], output: int) -> None:
        failure, failed = os.pipe()
        guardian = os.getpid()
        reach("program")
        pid = os.fork()
        if pid == 0:
            _become(command, environment, output, failed, guardian)
        os.close(failed)
        text = os.read(failure, 512)
        os.close(failure)
        if text:
            os.waitpid(pid, 0)
            self._report(f"failed {text.decode('ascii', 'replace')}")
        else:
            self._leader = pid
            reach("tell-started")
            self._report(f"started {pid}")

    def _watch(self, wake: int) -> bool:
        """Until the leader has ended or everything is to be killed. Returns whether anything may be left."""
        while self._status is None and not self._kill:
            self._wait(wake, None)
        until = time.monotonic() + CHILDREN_GRACE
        while not self._kill and time.monotonic() < until:
            if not is_anything_left(self._attempt, self._spared):
                return False
            self._wait(wake, _POLL / 10)
        return True

    def _clear(self, wake: int, anything_left: bool) -> None:
        """Kill what is left, report the leader's status, then what survived."""
        self._report("clearing")
        if self._kill:
            self._signal_group(signal.SIGKILL)
        reach("kill-tree")
        killed: Set[int] = set()
        left: List[int] = []
        if anything_left:
            killed, left = kill_all(self._attempt, self._spared, KILL_WITHIN, lambda seconds: self._wait(wake, seconds))
        give_up = time.monotonic() + KILL_WITHIN
        while self._status is None and time.monotonic() < give_up:
            self._wait(wake, _POLL)
        if self._status is not None:
            reach("tell-ended")
            self._report(f"ended {self._status} {len(killed)}")
        reach("tell-gone")
        self._report("gone " + " ".join(str(pid) for pid in left))

    def _wait(self, wake: int, seconds: Optional[float]) -> None:
        """Wait for an order or a child's end, at most that long, and take in what came."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if self._orders >= 0:
            poll.register(self._orders, select.POLLIN)
        for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000):
            if descriptor == wake:
                os.read(wake, 512)
            else:
                self._obey(os.read(self._orders, 512))
        self._collect()

    def _obey(self, orders: bytes) -> None:
        if not orders:
            self._orders = -1
        if not orders or signal.SIGKILL in orders:
            self._kill = True
            return
        for number in orders:
            if number == signal.SIGCONT:
                self._signal_group(number)
            elif not self._was_to_all(number):
                self._give_notice(number)

    def _hear(self, number: int, _frame: object) -> None:
        self._heard[number] = time.monotonic()

    def _was_to_all(self, number: int) -> bool:
        """Whether a signal that the wrapper got came to us too, and so to the program, which is our child."""
        give_up = time.monotonic() + (HEARD_SOON if self._signals_to_all else 0.0)
        while True:
            now = time.monotonic()
            if now - self._heard.get(number, -HEARD_WITHIN) < HEARD_WITHIN:
                return True
            if now >= give_up:
                return False
            time.sleep(0.01)

    def _give_notice(self, number: int) -> None:
        """Send a signal to whom it is for; where nobody says so, to the program's whole group."""
        found = listeners(number, self._leader, {os.getpid()}, self._attempt, self._spared)
        if not found:
            self._signal_group(number)
        for pid in found:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _signal_group(self, number: int) -> None:
        # A reaped leader's number may be somebody else's group by now.
        if self._status is None and self._leader:
            try:
                os.killpg(self._leader, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _collect(self) -> None:
        status = reap().get(self._leader)
        if status is not None:
            self._status = status

    def _report(self, line: str) -> None:
        try:
            os.write(self._reports, line.encode("ascii") + b"\n")
        except OSError:
            pass  # The wrapper is gone; the pipe for orders says so too.


def _become(command: Sequence[str], environment: Dict[str, str], output: int, failed: int, guardian: int) -> NoReturn:
    """Turn the forked child into the program; on failure write why into ``failed``."""
    try:
        os.setsid()
        die_with_parent(guardian)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass  # The C library keeps two real-time signals for itself.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(output, 1)
        _execute(command, environment)
    except Exception as error:
        os.write(failed, _describe(error).encode("ascii"))
    finally:
        os._exit(127)


def _execute(command: Sequence[str], environment: Dict[str, str]) -> NoReturn:
    """Become the program, found as execvp(3) finds one, in the PATH of its own environment.

    What :func:`os.execvpe` does, without the module that it imports first: 4 ms of each start.
    """
    name = command[0]
    path = environment.get("PATH", os.defpath)
    error: Optional[OSError] = None
    reach("program-exec")
    for folder in [""] if os.path.dirname(name) else path.split(os.pathsep):
        try:
            os.execve(os.path.join(folder, name), list(command), environment)
        except OSError as refusal:
            # A file that is there and is refused tells more than the folders that do not have it.
            if error is None or isinstance(error, (FileNotFoundError, NotADirectoryError)):
                error = refusal
    raise error or FileNotFoundError(name)


def _describe(error: Exception) -> str:
    """The error's errno, 0 where it has none, and its text, as one line of ASCII."""
    text = f"{type(error).__name__}: {error}".encode("unicode_escape").decode("ascii")
    return f"{getattr(error, 'errno', None) or 0} {text[:400]}"


def _wake_on_signal(hear: Callable[[int, object], None]) -> "tuple[int, int]":
    """Have what would end a bystander heard, and a child's end show as a byte in a pipe."""
    for number in _BYSTANDERS:
        signal.signal(number, hear)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read, write


def _let_go_of_all_but(*kept: int) -> None:
    """Close every other descriptor: the program's output must end with the program, the wrapper's with the wrapper."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) not in kept:
            try:
                os.close(int(entry))
            except OSError:
                pass
