"""What the local scheduler keeps on disk about one object: records that are made once, whole and durable.

Standard library only: the launcher of a job reads and writes the same records.

    objects/<token>/
      object.json       what to run: command line, folder, log, limits
      submission.json   the document that the wrapper reads
      environment.json  the job's environment; removed once the object has ended
      launch-<R>        somebody set out to start restart R; made before anything is started
      process-<R>       the launcher that runs it, or that none ever will
      alive-<R>         empty; the launcher holds a lock on it as long as it lives
      exit-<R>          how the wrapper ended
      ended-<R>         what the scheduler says ended it; the first one stands
      stopping-<R>      its program was asked to save and exit, and what it comes to is its end
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.failpoints import reach

Record = dict[str, Any]


class MalformedRecord(SchedulerError, ValueError):
    """A record on disk is not what such a record is; the text names it. Nothing follows from it."""


class ObjectFolder:
    """The paths of one object's records, for one restart.

    Args:
        path: the object's folder, whose name is the token.
        restart: R. The local scheduler never restarts an object, so there is only 0 today.
    """

    def __init__(self, path: Path, restart: int = 0) -> None:
        self.path = path
        self.restart = restart
        self.token = path.name
        self.description = path / "object.json"
        self.submission = path / "submission.json"
        self.environment = path / "environment.json"
        self.launch = path / f"launch-{restart}"
        self.process = path / f"process-{restart}"
        self.alive = path / f"alive-{restart}"
        self.exit = path / f"exit-{restart}"
        self.ended = path / f"ended-{restart}"
        self.stopping = path / f"stopping-{restart}"


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Write a record as JSON; in ASCII, so that names which are no UTF-8 come back as they were."""
    return (json.dumps(record, sort_keys=True) + "\n").encode("ascii")


def write_new(path: Path, content: bytes) -> None:
    """Write a new file, readable by its owner alone, down to the disk; its folder is not synced."""
    reach("local.record-write")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        reach("local.record-sync")
        os.fsync(file.fileno())


def create_once(path: Path, record: Mapping[str, Any]) -> bool:
    """Create a record, whole and durable, unless the name is taken. Returns whether it was created."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        write_new(temporary, encode_record(record))
        reach("local.record-link")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        sync_folder(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def read_record(path: Path) -> Record | None:
    """Read a record; None when there is none.

    Raises:
        MalformedRecord: it is not a JSON object, which nobody but a person or a broken disk can have done.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        record = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise MalformedRecord(f"{path} is not a JSON object; put back what it held")
    return record


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    reach("local.record-folder")
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp() -> Record:
    """When and where: the wall clock for people, and the time since boot for measuring.

    The wall clock can be set back, which must not prolong a time limit; the time since boot counts on through a
    suspend of the machine (clock_gettime(2), CLOCK_BOOTTIME).
    """
    return {"at": time.time(), "boot": boot_id(), "uptime": _uptime(), "host": socket.gethostname()}


def elapsed_seconds(record: Mapping[str, Any]) -> float | None:
    """The seconds since a record's stamp; None when the machine was restarted since, or it is another's."""
    return _uptime() - float(record["uptime"]) if record["boot"] == boot_id() else None


def boot_id() -> str:
    """The kernel's random id of this boot (proc_sys_kernel(5))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def time_limit_record(limit: float, linger_seconds: float) -> Record:
    """The ``ended`` record of a job whose time limit has passed."""
    return {
        "cause": "timed_out",
        "evidence": f"the time limit of {limit:g}s passed",
        "notice": True,
        "kill_after_seconds": linger_seconds,
        **stamp(),
    }


def _uptime() -> float:
    """Seconds since boot, the same for every process of this kernel: in a time namespace the clock is set off."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _boottime_offset()


def _boottime_offset() -> float:
    """What this process's time namespace adds to the time since boot (time_namespaces(7))."""
    try:
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    offsets = {name: int(seconds) + int(nanoseconds) / 1e9 for name, seconds, nanoseconds in map(str.split, lines)}
    return offsets.get("boottime", 0.0)
