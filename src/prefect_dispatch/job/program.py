"""The program as the wrapper holds it: started under a guardian, spoken to through pipes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time

from prefect_dispatch.errors import MalformedDocument, UsageError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import printable
from prefect_dispatch.job.guardian import KILL_WITHIN, Guardian
from prefect_dispatch.job.processes import (
    become_subreaper,
    children_now,
    has_ended,
    is_zombie,
    kill_all,
    listeners,
    reap,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Optional, Sequence, Tuple

_F_SETPIPE_SZ = 1031
_NO_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP)
"""What execve(2) says of a file that is the caller's mistake."""
_PIPE_BYTES = 1024 * 1024
"""What an unprivileged process may ask for by default (pipe(7)); a larger pipe means fewer, larger reads."""


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Args:
        status: the leader's wait status; None when the guardian was lost and nobody saw how the leader itself ended.
        killed: how many of its processes had to be killed after the leader's end or with it.
        left: processes that survived SIGKILL, which a hung file system can cause; 0 for one that could not be seen.
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
        is_clearing: whether the guardian has said that it is at the end: killing what is left.
        begun_at: when it was started, by the monotonic clock, in seconds.
    """

    def __init__(
        self, attempt: str, output: int, reports: int, orders: int, guardian: int, strangers: Collection[int]
    ) -> None:
        self.output = output
        self.reports = reports
        self.is_clearing = False
        self.begun_at = time.monotonic()
        self._attempt = attempt
        self._orders = orders
        self._guardian = guardian
        self._spared = {os.getpid(), *strangers}
        self._leader = 0
        self._ordered_to_kill = False
        self._text = b""
        self._status: Optional[int] = None
        self._killed = 0

    @classmethod
    def start(
        cls, command: Sequence[str], environment: Dict[str, str], attempt: str, signals_to_all: bool = False
    ) -> Program:
        """Start a command under a guardian. Call it before the first thread: it forks.

        Args:
            command: the program and its arguments.
            environment: its environment.
            attempt: the execution's token.
            signals_to_all: whether a signal to the wrapper may be one to all processes of the job.

        Raises:
            UsageError: the command is no program; nothing of it ran.
            MalformedDocument: a variable, which a save's state may be, holds what no environment can.
            OSError: this machine could not start it; nothing of it ran.
        """
        _check(environment)
        strangers = children_now()  # Of whoever became this wrapper by exec.
        # Should the guardian itself be killed, its orphans come to us and are killed from here.
        become_subreaper()
        output, program_output = os.pipe()
        orders_end, orders = os.pipe()
        reports, reports_end = os.pipe()
        _enlarge(output)
        wrapper = os.getpid()
        reach("guardian")
        guardian = os.fork()
        if guardian == 0:
            os.close(orders)
            guard = Guardian(attempt, wrapper, orders_end, reports_end, signals_to_all)
            guard.run(command, environment, program_output)
        for descriptor in (program_output, orders_end, reports_end):
            os.close(descriptor)
        program = cls(attempt, output, reports, orders, guardian, strangers)
        word, _, rest = program._next_line().partition(b" ")
        if word == b"started":
            program._leader = int(rest)
        elif word == b"failed":
            number, _, reason = rest.decode("ascii").partition(" ")
            if int(number):
                reason = os.strerror(int(number))
            text = f"command {command[0]!r} cannot be executed: {reason}"
            raise UsageError(text) if int(number) in _NO_PROGRAM else OSError(text)
        # No word at all: the guardian was lost, and the program may have begun. The next look at its reports ends that.
        return program

    def notify(self, number: int) -> None:
        """Send a signal to those of the program that it is for, and set going what is stopped: it would not hear it."""
        self._order(number)
        self._order(signal.SIGCONT)
        self._set_guardian_going()

    def hears(self, number: int) -> bool:
        """Whether anything of the program that a signal would be sent to has a handler for it."""
        return bool(listeners(number, self._leader, {self._guardian}, self._attempt, self._spared))

    def kill(self) -> None:
        """Have everything of the program killed."""
        self._ordered_to_kill = True
        self._order(signal.SIGKILL)

    @property
    def leader_is_unnoticed(self) -> bool:
        """Whether the leader has ended and the guardian, which takes note of that at once, has not."""
        return is_zombie(self._leader)

    @property
    def leader_has_ended(self) -> bool:
        """Whether the leader has ended, or is being killed with all the rest."""
        return self.is_clearing or has_ended(self._leader)

    def take_reports(self) -> Optional[Ending]:
        """Take what the guardian has to say; the ending once nothing of the program is left, else None."""
        while True:
            line = self._next_line()
            word, _, rest = line.partition(b" ")
            if word == b"ended":
                status, killed = rest.split()
                self._status, self._killed = int(status), int(killed)
            elif word == b"clearing":
                self.is_clearing = True
            elif word == b"gone":
                return Ending(self._status, self._killed, tuple(int(pid) for pid in rest.split()))
            elif not line:
                return self.end_without_guardian()
            if b"\n" not in self._text:
                return None

    def _set_guardian_going(self) -> None:
        try:
            os.kill(self._guardian, signal.SIGCONT)
        except ProcessLookupError:
            pass  # It is gone, which its reports say too.

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

    def end_without_guardian(self) -> Ending:
        """Kill everything of the program from here, and a guardian that does not answer with it."""
        statuses: Dict[int, int] = {}

        def idle(seconds: float) -> None:
            time.sleep(seconds)
            statuses.update(reap())

        killed, left = kill_all(self._attempt, self._spared, KILL_WITHIN, idle)
        status = statuses.get(self._leader, self._status)
        if status == signal.SIGKILL and not self._ordered_to_kill:
            status = None  # By us, or by the kernel for the guardian's death.
        return Ending(status, max(1, len(killed)), tuple(left))


def _check(environment: Dict[str, str]) -> None:
    for name, value in environment.items():
        try:
            held = "\0" not in value and os.fsencode(value) is not None
        except UnicodeEncodeError:
            held = False
        if not held:
            raise MalformedDocument(
                f"{name} would be {printable(repr(value), 200)}, which no environment variable can hold; "
                "find out where it comes from and resume from another save"
            )


def _enlarge(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass
