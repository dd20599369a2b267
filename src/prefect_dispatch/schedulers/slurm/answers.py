"""From what Slurm's commands said of a job to an observation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import EndedRestart, Exit, ObjectState, Observation
from prefect_dispatch.schedulers.slurm.states import canceller_of, meaning_of, word_of
from prefect_dispatch.schedulers.slurm.tables import AccountedRun, QueueEntry

_BY_OUR_SIGNAL = frozenset({9, 15, 128 + 9, 128 + 15})
"""What is told as the exit code of a batch script that SIGTERM or SIGKILL ended: by a shell the number and 128, by a
node where the script had not begun the bare number."""
WARNING_EARLY = timedelta(seconds=60)
"""So much before its lead time may a warning of Slurm's come (sbatch(1), ``--signal``)."""


def needs_accounting(entry: QueueEntry | None) -> bool:
    """Whether the queue alone does not tell of an object: it is not there, ran before, or somebody cancelled it."""
    return entry is None or entry.restart > 0 or _is_cancelled_by_others(entry)


def lacks_earlier_end(entry: QueueEntry, runs: Sequence[AccountedRun]) -> bool:
    """Whether a job waits or runs again, and the accounting does not know yet how the run before ended."""
    again = meaning_of(entry.state).state in (ObjectState.QUEUED, ObjectState.RUNNING) and entry.restart > 0
    return again and (len(runs) < entry.restart or not all(_is_over(run) for run in runs[: entry.restart]))


def await_accounting(entry: QueueEntry) -> Observation:
    """What is told of a job until the accounting knows how the run before ended."""
    evidence = f"{entry.state} again, and the accounting does not have the end of the run before yet"
    return Observation(state=ObjectState.ENDING, restart=entry.restart, evidence=evidence)


def observe(
    entry: QueueEntry | None,
    runs: Sequence[AccountedRun],
    *,
    accounting: bool,
    warning_lead: timedelta | None = None,
) -> Observation | None:
    """Put together what the queue and the accounting say of one object.

    The queue knows what is going on and forgets it after a while; the accounting keeps how each run ended, and who
    cancelled it, and comes later.

    Args:
        entry: the queue's; None where it does not know the object.
        runs: the accounting's, first run first; run R is restart R, unless some of them are lost: then nobody knows.
        accounting: whether there is an accounting at all.
        warning_lead: how long before its time limit the job was to be warned.

    Returns:
        None where neither knows it.
    """
    if entry is None and not accounting:
        # Whether it has ended, and how, nobody can tell any more: that it is gone would be a guess.
        evidence = "the queue does not know it, and there is no accounting that would know whether it has ended"
        return Observation(state=ObjectState.UNKNOWN, restart=0, evidence=evidence)
    if entry is None:
        return _forgotten(runs, warning_lead)
    state = meaning_of(entry.state).state
    numbered = runs if len(runs) >= entry.restart else ()
    ends = tuple(_ended(restart, run, warning_lead) for restart, run in enumerate(numbered) if _is_over(run))
    earlier = tuple(end for end in ends if end.restart < entry.restart)
    if state is ObjectState.QUEUED:
        return Observation(state=state, restart=entry.restart, ended=earlier, evidence=_waits(entry))
    if state is ObjectState.RUNNING:
        return Observation(
            state=state if entry.nodes and entry.started_at else ObjectState.QUEUED,
            restart=entry.restart,
            ended=earlier,
            nodes=entry.nodes if entry.started_at else (),
            started_at=entry.started_at if entry.nodes else None,
            evidence=entry.state,
        )
    if state is ObjectState.UNKNOWN:
        return Observation(state=state, restart=entry.restart, ended=earlier, evidence=_unknown(entry.state))
    if state is ObjectState.ENDED:
        told = _told_end(entry, runs, accounting, warning_lead)
        if told is not None:
            return told.model_copy(update={"ended": (*earlier, *told.ended)})
        return Observation(
            state=ObjectState.ENDING,
            restart=entry.restart,
            ended=earlier,
            evidence=f"{entry.state}, and the accounting does not have it yet",
        )
    return Observation(state=state, restart=entry.restart, ended=earlier, evidence=entry.state)


def _forgotten(runs: Sequence[AccountedRun], warning_lead: timedelta | None) -> Observation | None:
    """What the accounting says of an object that has left the queue."""
    if not runs:
        return None
    last, restart = runs[-1], len(runs) - 1
    ends = tuple(_ended(number, run, warning_lead) for number, run in enumerate(runs) if _is_over(run))
    if not _is_over(last):
        meaning = meaning_of(last.state)
        known = meaning.state is not ObjectState.UNKNOWN
        evidence = f"the queue has forgotten it, and the accounting still says {last.state}"
        return Observation(
            state=ObjectState.UNKNOWN,
            restart=restart,
            ended=ends,
            evidence=evidence if known else _unknown(last.state),
        )
    return _over(restart, last, warning_lead).model_copy(update={"ended": ends})


def _told_end(
    entry: QueueEntry, runs: Sequence[AccountedRun], accounting: bool, warning_lead: timedelta | None
) -> Observation | None:
    """The end of the current run, as the queue has it; None where the accounting has to tell more and does not yet."""
    run = AccountedRun(
        id=entry.id,
        token=entry.token,
        state=entry.state,
        exit=entry.exit,
        submitted_at=None,
        started_at=entry.started_at,
        ended_at=entry.ended_at,
        time_limit=entry.time_limit,
        nodes=entry.nodes,
        stop_asked=entry.stop_asked,
    )
    if not accounting:
        return _over(entry.restart, run, warning_lead)
    if entry.restart > 0 and entry.nodes:
        if len(runs) < entry.restart or not _is_over(runs[entry.restart - 1]):
            return None
        before = runs[entry.restart - 1]
        if (run.started_at, run.ended_at) == (before.started_at, before.ended_at):
            # It was cancelled on its way to a restart, while the run before was still being ended. Slurm counts that
            # restart and accounts for no run of it, and the queue has the times and nodes of the run before.
            return _over(entry.restart, replace(run, nodes=(), started_at=None), warning_lead)
    if _is_cancelled_by_others(entry):
        if len(runs) <= entry.restart or not _is_over(runs[entry.restart]):
            return None
        run = replace(run, state=runs[entry.restart].state)
    return _over(entry.restart, run, warning_lead)


def _is_cancelled_by_others(entry: QueueEntry) -> bool:
    return word_of(entry.state) == "CANCELLED" and not entry.stop_asked


def _over(restart: int, run: AccountedRun, warning_lead: timedelta | None) -> Observation:
    end = _ended(restart, run, warning_lead)
    return Observation(
        state=ObjectState.ENDED,
        restart=restart,
        ended=(end,),
        nodes=run.nodes,
        started_at=run.started_at if run.nodes else None,
        evidence=end.evidence,
    )


def _is_over(run: AccountedRun) -> bool:
    return meaning_of(run.state).state is ObjectState.ENDED and run.ended_at is not None


def _ended(restart: int, run: AccountedRun, warning_lead: timedelta | None) -> EndedRestart:
    cause, evidence = _cause(run.state, run.exit, run.stop_asked), _evidence(run.state, run.stop_asked)
    if cause is Cause.TIMED_OUT and run.time_limit is not None:
        evidence = f"{evidence} at its limit of {run.time_limit}"
    if cause is None and not run.stop_asked and _was_warned(run, warning_lead):
        cause, evidence = Cause.TIMED_OUT, f"{evidence}: it was warned of its limit of {run.time_limit}, and saved"
    return EndedRestart(
        restart=restart,
        cause=cause,
        exit=run.exit if run.nodes else None,
        nodes=run.nodes,
        ended_at=run.ended_at,
        evidence=evidence,
    )


def _was_warned(run: AccountedRun, lead: timedelta | None) -> bool:
    """Whether it saved and exited when Slurm warned it of its time limit."""
    if lead is None or run.time_limit is None or run.started_at is None or run.ended_at is None:
        return False
    ran = run.ended_at - run.started_at
    return run.exit.code == ExitCode.SAVED_ON_REQUEST and ran >= run.time_limit - lead - WARNING_EARLY


def _cause(state: str, exit: Exit, stop_asked: bool) -> Cause | None:
    """What ended a run: Slurm's word, whatever the exit says. A death by the signal that we had it sent is a stop."""
    meaning = meaning_of(state)
    if meaning.cause is None and word_of(state) == "FAILED":
        if stop_asked and (exit.signal is not None or exit.code in _BY_OUR_SIGNAL):
            return Cause.STOPPED
        if exit.code == 0:
            # Slurm says that it failed: the batch script's exit does not tell how.
            return Cause.FAILED
    return meaning.cause


def _evidence(state: str, stop_asked: bool) -> str:
    if stop_asked:
        return f"{word_of(state)}, after we asked for its end"
    return f"{state} (root, or Slurm itself)" if canceller_of(state) == 0 else state


def _waits(entry: QueueEntry) -> str:
    reason = "" if entry.reason in ("", "None") else f": {entry.reason}"
    return f"{entry.state}{reason}"


def _unknown(state: str) -> str:
    return f"Slurm says {state}: {meaning_of(state).why}"
