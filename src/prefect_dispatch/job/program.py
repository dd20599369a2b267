"""The program as the wrapper holds it: started under a guardian, spoken to through pipes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from typing import Dict, Optional, Sequence, Tuple

from prefect_dispatch.errors import UsageError
from prefect_dispatch.job.guardian import KILL_WITHIN, Guardian
from prefect_dispatch.job.processes import become_subreaper, kill_all, reap

_F_SETPIPE_SZ = 1031
_NO_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP)
"""What execve(2) says of a file that is the caller's mistake."""
_PIPE_BYTES = 1024 * 1024
"""What an unprivileged process may ask for by default (pipe(7)); a larger pipe means fewer, larger reads."""


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Args:
        status: the leader's wait status; None when the guardian was lost and nobody saw it.
        killed: how many of its processes had to be killed after the leader's end or with it.
        left: processes that survived SIGKILL, which a hung file system can cause.
    """

    status: Optional[int]
    killed: int = 0
    left: Tuple[int, ...] = ()

    @property
    def signal(self) -> Optional[int]:
        """The signal that ended the leader, if one did."""
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int:
        """The leader's exit code as a shell gives it: 128 + n for a signal; 1 where it is not known."""
        if self.status is None:
            return 1
        return 128 + os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else os.WEXITSTATUS(self.status)


class Program:
    """A started program.

    Attributes:
        output: the descriptor on which its standard output arrives.
        reports: the descriptor that becomes readable when :meth:`take_reports` has something to take.
    """

    def __init__(self, attempt: str, output: int, reports: int, orders: int) -> None:
        self.output = output
        self.reports = reports
        self._attempt = attempt
        self._orders = orders
        self._text = b""
        self._status: Optional[int] = None
        self._killed = 0

    @classmethod
    def start(cls, command: Sequence[str], environment: Dict[str, str], attempt: str) -> Program:
        """Start a command under a guardian. Call it before the first thread: it forks.

        Raises:
            UsageError: the command is no program; nothing of it ran.
        OSError: this machine could not start it; nothing of it ran.
        """
        # Should the guardian itself be killed, its orphans come to us and are killed from here.
        become_subreaper()
        output, program_output = os.pipe()
        orders_end, orders = os.pipe()
        reports, reports_end = os.pipe()
        _enlarge(output)
        wrapper = os.getpid()
        if os.fork() == 0:
            os.close(orders)
            Guardian(attempt, wrapper, orders_end, reports_end).run(command, environment, program_output)
        for descriptor in (program_output, orders_end, reports_end):
            os.close(descriptor)
        program = cls(attempt, output, reports, orders)
        word, _, number = program._next_line().partition(b" ")
        if word == b"started":
            return program
        reason = int(number) if word == b"failed" else 0
        text = f"command {command[0]!r} cannot be executed: {os.strerror(reason) if reason else 'no guardian'}"
        raise UsageError(text) if reason in _NO_PROGRAM else OSError(text)

    def notify(self, number: int) -> None:
        """Send a signal to the program's process group."""
        self._order(number)

    def kill(self) -> None:
        """Have everything of the program killed."""
        self._order(signal.SIGKILL)

    def take_reports(self) -> Optional[Ending]:
        """Take what the guardian has to say; the ending once nothing of the program is left, else None."""
        while True:
            line = self._next_line()
            word, _, rest = line.partition(b" ")
            if word == b"ended":
                status, killed = rest.split()
                self._status, self._killed = int(status), int(killed)
            elif word == b"gone":
                return Ending(self._status, self._killed, tuple(int(pid) for pid in rest.split()))
            elif not line:
                return self._clear_without_guardian()
            if b"\n" not in self._text:
                return None

    def _next_line(self) -> bytes:
        """One line of the guardian, without its end; empty once the guardian is gone."""
        while b"\n" not in self._text:
            text = os.read(self.reports, 512)
            if not text:
                return b""
            self._text += text
        line, _, self._text = self._text.partition(b"\n")
        return line

    def _order(self, number: int) -> None:
        try:
            os.write(self._orders, bytes([number]))
        except OSError:
            pass  # The guardian is gone, which its reports say too.

    def _clear_without_guardian(self) -> Ending:
        def idle(seconds: float) -> None:
            time.sleep(seconds)
            reap()

        left = kill_all(self._attempt, {os.getpid()}, KILL_WITHIN, idle)
        reap()
        return Ending(self._status, 1, tuple(left))


def _enlarge(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass
