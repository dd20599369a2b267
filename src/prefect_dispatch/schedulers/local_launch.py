"""Starting an object of the local scheduler: the launch record first, then the detached launcher."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.schedulers import local_launcher
from prefect_dispatch.schedulers.local_object import end
from prefect_dispatch.schedulers.local_records import ObjectFolder, create_once, read_record, stamp

LAUNCHER = Path(local_launcher.__file__)


def launch(folder: ObjectFolder) -> int | None:
    """Set out to start an object, once. The caller holds the lock.

    Returns:
        A child process to wait for, which ends as soon as the launcher has left it; None when there is none.
    """
    reach("local.launch")
    if not create_once(folder.launch, {"by": os.getpid(), **stamp()}):
        return None
    try:
        return _spawn(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        end(folder, Cause.LAUNCH_FAILED, f"it could not be started: {error}", notice=False, kill_after=timedelta(0))
        return None


def wait_for(child: int) -> None:
    """Wait for what :func:`launch` returned."""
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        # A process that ignores SIGCHLD has its children reaped for it (waitpid(2)).
        pass


def _spawn(folder: ObjectFolder) -> int:
    environment = read_record(folder.environment) or {}
    arguments = [sys.executable, "-I", "-X", "utf8", str(LAUNCHER), str(folder.path), str(folder.restart)]
    log = _open_log(Path((read_record(folder.description) or {})["log"]))
    reach("local.spawn")
    try:
        return os.posix_spawn(
            sys.executable,
            arguments,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(log)


def _open_log(path: Path) -> int:
    reach("local.log-folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    reach("local.log")
    # Not blocking while it is opened: a FIFO that nobody reads would keep the lock for ever.
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    os.set_blocking(log, True)
    return log
