"""One object of the local scheduler: whether it has ended, and what is said of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import EndedRestart, Exit, ObjectState, Observation
from prefect_dispatch.schedulers.local_identity import is_alive, is_visible
from prefect_dispatch.schedulers.local_records import (
    MalformedRecord,
    ObjectFolder,
    Record,
    boot_id,
    create_once,
    elapsed_seconds,
    read_record,
    stamp,
    time_limit_record,
)

HANG_GRACE = timedelta(seconds=10)
"""What a launcher has beyond the time in which it was to end its job; then whoever looks ends both."""


def settle(folder: ObjectFolder, launch_bound: timedelta) -> bool:
    """Record the object's end if it is due, and tell whether it has ended. The caller holds the lock.

    Args:
        folder: the object.
        launch_bound: how long after the launch record the launcher's own may take.

    Raises:
        MalformedRecord: one of its records does not tell what it should.
    """
    if folder.ended.exists():
        return True
    with _named(folder):
        due = _due_end(folder, launch_bound)
    if due is None:
        return False
    reach("local.settle")
    create_once(folder.ended, due)
    signal_launcher(folder, signal.SIGKILL if due.get("overdue") else signal.SIGTERM)
    return True


def end(folder: ObjectFolder, cause: Cause, evidence: str, notice: bool, kill_after: timedelta) -> bool:
    """Say that the object has ended, before anything is done to it. Returns False when it had ended already.

    Args:
        folder: the object.
        cause: what the scheduler says ended it.
        evidence: the same in words.
        notice: whether the wrapper is told.
        kill_after: how long its processes may live on.
    """
    reach("local.end")
    created = create_once(folder.ended, _ended(cause, evidence, notice=notice, kill_after=kill_after.total_seconds()))
    if created and (notice or not kill_after):
        signal_launcher(folder)
    return created


def ask_to_exit(folder: ObjectFolder, kill_after: timedelta) -> bool:
    """Ask the object's program to save and exit; how that ends is the object's end. Idempotent.

    Args:
        folder: the object.
        kill_after: how long its processes may take.

    Returns:
        Whether there is a program to ask; one that is not started yet, or is lost, has to be ended.

    Raises:
        MalformedRecord: its record of the launcher does not tell what it should.
    """
    with _named(folder):
        process = read_record(folder.process) or {}
        if "pid" not in process or is_alive(process, folder.alive) is False:
            return False
    reach("local.ask")
    asked = _ended(Cause.STOPPED, "asked to save and exit", notice=True, kill_after=kill_after.total_seconds())
    if create_once(folder.stopping, asked):
        signal_launcher(folder)
    return True


def signal_launcher(folder: ObjectFolder, number: int = signal.SIGTERM) -> None:
    """Wake the launcher, if it lives, so that it reads the ``ended`` record now and not at its next look.

    One that somebody has stopped (SIGSTOP) goes on, or what it was to end would never end. SIGKILL takes its wrapper
    along, and that one's end the program.
    """
    try:
        process = read_record(folder.process) or {}
        lives = "pid" in process and is_visible(process) and is_alive(process, folder.alive)
    except (ValueError, KeyError, TypeError, OverflowError):
        return  # Observed as unknown; if it lives, it sees the record at its next look.
    if lives:
        reach("local.signal")
        try:
            os.kill(process["pid"], number)
            os.kill(process["pid"], signal.SIGCONT)
        except ProcessLookupError:
            pass


def is_launched(folder: ObjectFolder) -> bool:
    """Whether somebody set out to start it."""
    return folder.launch.exists() or folder.process.exists()


def is_retired(folder: ObjectFolder) -> bool:
    """Whether it has ended, and what may be secret of it was removed: then nothing is to be done about it any more."""
    return folder.ended.exists() and not folder.environment.exists()


def log_of(folder: ObjectFolder) -> str | None:
    """The file that its output goes to; None where its description cannot be read."""
    try:
        return str((read_record(folder.description) or {})["log"])
    except (OSError, ValueError, KeyError):
        return None


def observe(folder: ObjectFolder, launch_bound: timedelta) -> Observation:
    """Say what the records of an object say, and record its end if it is due. The caller holds the lock.

    A record that cannot be read is an unknown state, also where its end alone depends on it: what is not seen to end
    would run for ever.
    """
    try:
        with _named(folder):
            seen = _observe(folder)
            # In this order: a launcher that was gone when it was looked at is gone when its end is asked for.
            if seen.state is not ObjectState.ENDED and settle(folder, launch_bound):
                seen = _observe(folder)
            return seen
    except MalformedRecord as error:
        return Observation(state=ObjectState.UNKNOWN, restart=folder.restart, evidence=f"{error}")


@contextmanager
def _named(folder: ObjectFolder) -> Iterator[None]:
    """Tell what a record that is JSON, but no such record, comes to as an error that names its folder."""
    try:
        yield
    except MalformedRecord:
        raise
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise MalformedRecord(
            f"a record in {folder.path} does not tell what it should ({type(error).__name__}: {error}); put back what "
            "it held"
        ) from error


def _observe(folder: ObjectFolder) -> Observation:
    process = read_record(folder.process)
    started = process if process is not None and "pid" in process else None
    nodes = (started["host"],) if started else ()
    ended = read_record(folder.ended)
    if ended is not None:
        state, evidence = ObjectState.ENDED, ended["evidence"]
    elif started is None:
        state, evidence = ObjectState.QUEUED, "being started" if is_launched(folder) else "waits for a slot"
    else:
        state, evidence = _observe_started(folder, started)
    return Observation(
        state=state,
        restart=folder.restart,
        ended=(_ended_restart(folder.restart, ended, nodes),) if ended is not None else (),
        nodes=nodes,
        started_at=_time(started) if started else None,
        evidence=evidence,
    )


def _observe_started(folder: ObjectFolder, process: Record) -> tuple[ObjectState, str]:
    alive = is_alive(process, folder.alive)
    if alive is None:
        return ObjectState.UNKNOWN, _where(process)
    if not alive:
        return ObjectState.UNKNOWN, _how_it_was_lost(process)
    if folder.stopping.exists():
        return ObjectState.ENDING, "it was asked to save and exit"
    return ObjectState.RUNNING, f"launcher {process['pid']} runs it"


def _ended_restart(restart: int, ended: Record, nodes: tuple[str, ...]) -> EndedRestart:
    exit = {name: ended[name] for name in ("code", "signal") if name in ended}
    return EndedRestart(
        restart=restart,
        cause=Cause(ended["cause"]) if ended["cause"] else None,
        exit=Exit(**exit) if exit else None,
        nodes=nodes,
        ended_at=_time(ended),
        evidence=ended["evidence"],
    )


def _due_end(folder: ObjectFolder, launch_bound: timedelta) -> Record | None:
    process = read_record(folder.process)
    if process is None:
        launch = read_record(folder.launch)
        if launch is None:
            return None
        waited = elapsed_seconds(launch)
        if waited is not None and waited < launch_bound.total_seconds():
            return None
        reach("local.never-started")
        # Whoever creates this name decides: a launcher that comes later finds it taken and starts nothing.
        if not create_once(folder.process, {"never_started": True, **stamp()}):
            return None
        process = {"never_started": True}
    if "never_started" in process:
        bound = f"{launch_bound.total_seconds():g}s"
        return _ended(Cause.LAUNCH_FAILED, f"its launcher did not come up within {bound}")
    # The order matters: a launcher that is gone has written the exit before, so the exit is read after.
    alive = is_alive(process, folder.alive)
    outcome = read_record(folder.exit)
    if outcome is not None:
        return _ended_by_exit(outcome, folder.stopping.exists())
    if alive is None:
        return None
    if not alive:
        return _ended(Cause.NODE_LOST, _how_it_was_lost(process))
    order = read_record(folder.stopping)
    if order is not None:
        bound = order["kill_after_seconds"] + HANG_GRACE.total_seconds()
        if (elapsed_seconds(order) or 0.0) >= bound:
            evidence = f"asked to save and exit, it had not ended after {bound:g}s, and was killed"
            return {**_ended(Cause.STOPPED, evidence), "overdue": True}
    description = read_record(folder.description) or {}
    limit = description["time_limit_seconds"]
    if limit is not None and (elapsed_seconds(process) or 0.0) >= limit:
        return time_limit_record(limit, description["linger_seconds"])
    return None


def _where(process: Record) -> str:
    if process["boot"] == boot_id():
        return f"it was started in another namespace, {process.get('pid_namespace')}; ask there, or stop it"
    return f"it was started on {process['host']}; ask there, or stop it"


def _how_it_was_lost(process: Record) -> str:
    if process["boot"] != boot_id():
        return "the machine was restarted"
    return f"launcher {process['pid']} is gone and recorded no exit"


def _ended_by_exit(outcome: Record, stopping: bool) -> Record:
    if "failed" in outcome:
        return {**_ended(Cause.LAUNCH_FAILED, outcome["failed"]), "at": outcome["at"]}
    exit: Record = {name: outcome[name] for name in ("code", "signal") if name in outcome}
    if not exit:
        raise KeyError("neither code nor signal")
    # The machine was shut down, or somebody ended the launcher: a wrapper that this kills has nothing to say of itself.
    by_whom = Cause.STOPPED if stopping else Cause.PREEMPTED
    cause = by_whom if outcome.get("asked") else None
    return {**_ended(cause, str(Exit(**exit))), **exit, "at": outcome["at"]}


def _ended(cause: Cause | None, evidence: str, notice: bool = False, kill_after: float = 0.0) -> Record:
    return {
        "cause": cause.value if cause else None,
        "evidence": evidence,
        "notice": notice,
        "kill_after_seconds": kill_after,
        **stamp(),
    }


def _time(record: Record) -> datetime:
    return datetime.fromtimestamp(record["at"], UTC)
