"""What ``squeue`` and ``sacct`` print, as values. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from prefect_dispatch.errors import SchedulerError, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.schedulers.slurm.node_list import expand_nodes
from prefect_dispatch.schedulers.slurm.time_limits import read_time_limit

QUEUE_FIELDS = (
    "JobID",
    "State",
    "RestartCnt",
    "exit_code",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NodeList",
    "Reason",
    "Name",
    "Comment",
)
ACCOUNTING_FIELDS = (
    "JobIDRaw",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "Timelimit",
    "NodeList",
    "JobName",
    "Comment",
)
FREE_TEXT = 2
"""So many fields at the end may hold anything; the name of a job of ours holds no ``|``."""
_BEGINS = re.compile(r"(\d+)(?:[_+.][^|]*)?\|")
_OUR_NAME = re.compile(r"[a-z0-9-]{1,40}\.g\d{1,7}n\d{1,6}\.([a-z2-7]{16})\Z")
COMMENT = "prefect-dispatch"
STOP_ASKED = "stop"
REFUSED = "BadConstraints"


@dataclass(frozen=True)
class QueueEntry:
    """One job, as slurmctld has it.

    Attributes:
        id: the job id.
        token: the token in its name.
        state: Slurm's text for its state.
        restart: how often it was restarted.
        exit: how the batch script ended, where it has.
        started_at: when it started; for a queued one a guess of Slurm's.
        ended_at: when it ended; for a running one when it has to.
        time_limit: its limit, where there is one.
        nodes: where it runs.
        reason: why it waits, or ended.
        stop_asked: whether its comment says that we asked for its end.
    """

    id: str
    token: str
    state: str
    restart: int
    exit: Exit
    started_at: datetime | None
    ended_at: datetime | None
    time_limit: timedelta | None
    nodes: tuple[str, ...]
    reason: str
    stop_asked: bool


@dataclass(frozen=True)
class AccountedRun:
    """One run of a job, as slurmdbd has it.

    Attributes:
        id: the job id.
        token: the token in its name.
        state: Slurm's text for its state.
        exit: how the batch script ended.
        submitted_at: when it was submitted, or requeued.
        started_at: when it started; None where it has not.
        ended_at: when it ended; None where it has not.
        time_limit: its limit, where there is one.
        nodes: where it ran.
        stop_asked: whether its comment says that we asked for its end.
    """

    id: str
    token: str
    state: str
    exit: Exit
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    time_limit: timedelta | None
    nodes: tuple[str, ...]
    stop_asked: bool


def queue_format() -> str:
    """The value of ``squeue --Format``: fields without padding, each ended by ``|``."""
    return ",".join(f"{field}:|" for field in QUEUE_FIELDS)


def comment_of(token: str, stop_asked: bool = False) -> str:
    """The comment of a job of ours."""
    return f"{COMMENT}:{token}:{STOP_ASKED}" if stop_asked else f"{COMMENT}:{token}"


def read_queue(text: str) -> dict[str, QueueEntry]:
    """Read what ``squeue`` printed: our own jobs in it, by id.

    What ``sbatch`` was refused stays there for a while as well, failed for bad constraints; it is no job.

    Raises:
        SchedulerError: it is not ``squeue``'s.
    """
    entries: dict[str, QueueEntry] = {}
    for fields, token in _our_lines(text, len(QUEUE_FIELDS), "squeue"):
        id, state, restart, code, start, end, limit, nodes, reason, _, comment = fields
        if state == "FAILED" and reason == REFUSED and not expand_nodes(nodes):
            continue
        entries[id] = QueueEntry(
            id=id,
            token=token,
            state=state,
            restart=_count(restart, "squeue"),
            exit=_exit(code, "squeue"),
            started_at=_time(start, "squeue"),
            ended_at=_time(end, "squeue"),
            time_limit=_limit(limit),
            nodes=expand_nodes(nodes),
            reason=reason,
            stop_asked=_stop_asked(comment, token),
        )
    return entries


def read_accounting(text: str) -> dict[str, list[AccountedRun]]:
    """Read what ``sacct -D -X -P -n`` printed: the runs of our own jobs, by id, in their order.

    A job that was resized while it ran has a row for each size; only the last one is of its run's end.

    Raises:
        SchedulerError: it is not ``sacct``'s.
    """
    runs: dict[str, list[AccountedRun]] = {}
    for fields, token in _our_lines(text, len(ACCOUNTING_FIELDS), "sacct"):
        id, state, code, submit, start, end, limit, nodes, _, comment = fields
        if state.startswith("RESIZING"):
            continue
        runs.setdefault(id, []).append(
            AccountedRun(
                id=id,
                token=token,
                state=state,
                exit=_exit(code, "sacct"),
                submitted_at=_time(submit, "sacct"),
                started_at=_time(start, "sacct"),
                ended_at=_time(end, "sacct"),
                time_limit=_limit(limit),
                nodes=expand_nodes(nodes),
                stop_asked=_stop_asked(comment, token),
            )
        )
    never = datetime.min.replace(tzinfo=UTC)
    return {id: sorted(told, key=lambda run: run.submitted_at or never) for id, told in runs.items()}


def _our_lines(text: str, count: int, command: str) -> Iterator[tuple[list[str], str]]:
    """The fields of the lines that are of our own jobs, each with its token."""
    seen = False
    for line in text.splitlines():
        if not line.strip():
            continue
        if not _BEGINS.match(line):
            if seen:
                # The rest of somebody's name that holds a line break.
                continue
            raise SchedulerError(f"{command} printed what is none of its lines: {printable(repr(line), 120)}")
        seen = True
        # The last field is the comment, to which others may have written anything.
        fields = line.removesuffix("|").split("|", count - 1)
        if len(fields) < count:
            if len(fields) > count - FREE_TEXT - 1:
                continue
            raise SchedulerError(f"{command} printed part of a line: {printable(repr(line), 120)}")
        found = _OUR_NAME.match(fields[count - FREE_TEXT])
        if found and fields[0].isdigit():
            yield fields, found.group(1)


def _count(text: str, command: str) -> int:
    if not text.isdigit():
        raise SchedulerError(f"{command} printed {text!r} as a count of restarts")
    return int(text)


def _exit(text: str, command: str) -> Exit:
    """An exit: ``code:signal``, or the bare wait status that ``squeue`` printed before 23.11."""
    if text.isdigit():
        status = int(text)
        if os.WIFSIGNALED(status):
            return Exit(signal=os.WTERMSIG(status))
        return Exit(code=os.WEXITSTATUS(status))
    code, colon, number = text.partition(":")
    if not (colon and code.isdigit() and number.isdigit()):
        if not text or text == "N/A":
            return Exit()
        raise SchedulerError(f"{command} printed {text!r} as an exit")
    return Exit(signal=int(number)) if int(number) else Exit(code=int(code) & 0xFF)


def _limit(text: str) -> timedelta | None:
    """A limit is told of an end and decides nothing, so that one that cannot be read is none."""
    try:
        return read_time_limit(text)
    except UsageError:
        return None


def _time(text: str, command: str) -> datetime | None:
    if text in ("", "None", "Unknown", "N/A", "NONE", "(null)"):
        return None
    if not text.isdigit():
        raise SchedulerError(f"{command} printed {text!r} as a time; it was asked for seconds")
    return datetime.fromtimestamp(int(text), UTC) if int(text) else None


def _stop_asked(comment: str, token: str) -> bool:
    return comment.strip() == comment_of(token, stop_asked=True)
