"""A wrapper that does nothing but run its command: for tests of a scheduler that are to need no store.

Run as ``python -I plain_wrapper.py run --submission FILE -- COMMAND``. Standard library only. It tells the program its
attempt, passes SIGTERM on, and takes the program along when it dies itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code, or 128 and the signal's number."""
    word, option, submission, dashes, *command = arguments
    if (word, option, dashes) != ("run", "--submission", "--"):
        raise SystemExit(f"plain_wrapper: {arguments} is not 'run --submission FILE -- COMMAND'")
    token = json.loads(Path(submission).read_bytes())["token"]
    libc, wrapper = ctypes.CDLL(None), os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != wrapper:
            # It died before the kernel was told, which then says nothing.
            os._exit(1)

    program = subprocess.Popen(
        command,
        env={**os.environ, "DISPATCH_ATTEMPT": f"{token}-{os.environ['DISPATCH_RESTART']}"},
        preexec_fn=before_exec,
    )

    def forward(number: int, frame: FrameType | None) -> None:
        program.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    code = program.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
