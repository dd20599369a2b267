"""The launcher: the detached process that runs one job of the local scheduler and records how it ended.

Run as ``python -I -X utf8 local_launcher.py FOLDER RESTART`` with the job's log as its output. Nobody waits for it, and
it needs nobody: it keeps the time limit, passes a preemption on and ends what lingers, with or without a supervisor.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Isolated mode leaves out the folder that this package may be run from; first, so that it is this very version's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from prefect_dispatch.failpoints import reach
from prefect_dispatch.schedulers.local_identity import hold_lock, identify
from prefect_dispatch.schedulers.local_records import (
    ObjectFolder,
    Record,
    create_once,
    elapsed_seconds,
    read_record,
    stamp,
    time_limit_record,
)

WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
POLL_SECONDS = 1.0
"""How late it may notice an ``ended`` record whose signal was lost."""
_PR_SET_PDEATHSIG = 1


def main(folder: ObjectFolder) -> None:
    """Run one restart of an object, unless its process record is taken."""
    _close_inherited()
    # The process that the supervisor started ends at once and can be waited for; what goes on is nobody's child.
    reach("local.detach")
    if os.fork():
        os._exit(0)
    # Blocked before the process record tells others whom to signal, so that none is lost: the watch fetches them.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    lifeline = hold_lock(folder.alive)
    process = identify(os.getpid(), lifeline is not None)
    reach("local.process")
    if not create_once(folder.process, process):
        return
    outcome = _run(folder, process, lifeline)
    _keep_trying_to_record(folder.exit, outcome)


def _run(folder: ObjectFolder, process: Record, lifeline: int | None) -> Record:
    if folder.ended.exists():
        return {"failed": "it was ended before it was started"}
    try:
        description = read_record(folder.description) or {}
        environment = read_record(folder.environment)
        if environment is None:
            return {"failed": f"{folder.environment} is gone; it was ended before it was started"}
        wrapper = _start(description, environment, lifeline)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    asked = _watch(wrapper, folder, process, description)
    code = wrapper.returncode
    return {"code": code} if code >= 0 else {"signal": -code, "asked": asked}


def _start(description: Record, environment: Record, lifeline: int | None) -> subprocess.Popen[bytes]:
    libc, launcher = ctypes.CDLL(None), os.getpid()

    def before_exec() -> None:
        if lifeline is not None:
            os.close(lifeline)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Without its launcher nobody would end a wrapper that lingers (prctl(2)).
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            # It died before the kernel was told, which then says nothing.
            os._exit(1)

    reach("local.wrapper")
    return subprocess.Popen(
        description["arguments"],
        cwd=description["workdir"],
        env=environment,
        stdin=subprocess.DEVNULL,
        preexec_fn=before_exec,
    )


def _watch(wrapper: subprocess.Popen[bytes], folder: ObjectFolder, process: Record, description: Record) -> bool:
    """Wait for the wrapper's end; meanwhile keep its time limit and carry out what a record asks for.

    Returns:
        Whether it was asked to end.
    """
    limit = description["time_limit_seconds"]
    woken = noticed = False
    while wrapper.poll() is None:
        order = _read_order(folder)
        wait = POLL_SECONDS
        if order is not None:
            left = order["kill_after_seconds"] - (elapsed_seconds(order) or 0.0)
            if left <= 0:
                wrapper.kill()
            else:
                wait = min(wait, left)
        elif limit is not None:
            left = limit - (elapsed_seconds(process) or 0.0)
            if left <= 0 and _record_time_limit(folder, limit, description["linger_seconds"]):
                continue
            wait = min(wait, max(left, 0.0) or POLL_SECONDS)
        # A signal without such a record is somebody else's, such as a shutdown of the machine.
        if not noticed and (order["notice"] if order is not None else woken):
            wrapper.terminate()
            # One that was stopped would not hear of it.
            wrapper.send_signal(signal.SIGCONT)
            noticed = True
        received = signal.sigtimedwait(WATCHED, wait)
        woken = woken or (received is not None and received.si_signo != signal.SIGCHLD)
    return noticed


def _read_order(folder: ObjectFolder) -> Record | None:
    """What is to be done with the wrapper: an end beats a request to save and exit."""
    try:
        return read_record(folder.ended) or read_record(folder.stopping)
    except (OSError, ValueError):
        return None


def _record_time_limit(folder: ObjectFolder, limit: float, linger_seconds: float) -> bool:
    reach("local.time-limit")
    try:
        create_once(folder.ended, time_limit_record(limit, linger_seconds))
    except OSError:
        return False
    return True


def _keep_trying_to_record(path: Path, outcome: Record) -> None:
    """Record how it ended. A full disk may have room again later; until then the job counts as running."""
    record: dict[str, Any] = {**outcome, **stamp()}
    while True:
        reach("local.exit")
        try:
            create_once(path, record)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            print(f"dispatch: cannot record the end of this job: {error}; trying again", file=sys.stderr)  # noqa: T201
            time.sleep(POLL_SECONDS)


def _close_inherited() -> None:
    """Keep the three standard files alone: what else a supervisor has open is none of the job's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                pass


if __name__ == "__main__":
    main(ObjectFolder(Path(sys.argv[1]), int(sys.argv[2])))
