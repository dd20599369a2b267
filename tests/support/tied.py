"""Commands that are killed with the process that started them, by SIGKILL too: a server of a test outlives no test run.

Run as a program: the first argument is the pid of the one whose end counts, the rest the command that it becomes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(*command: str) -> list[str]:
    """A command that ends with this process. It is to be started by the main thread: the kernel looks at the thread."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def become(parent: int, command: Sequence[str]) -> None:
    """Have the kernel kill this process when its parent ends (prctl(2)), and become the command."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(command[0], command)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
