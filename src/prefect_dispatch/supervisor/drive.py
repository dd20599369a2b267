"""Driving a lineage by advance until something happened that its caller must know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prefect_dispatch.model.state import Execution, Landing, LineageState, SubmissionState
from prefect_dispatch.model.steps import Append, Done, Finish, Held, Overtaken
from prefect_dispatch.supervisor.advance import Advanced, Supervisor, warn
from prefect_dispatch.supervisor.trouble import Tell


@dataclass(frozen=True)
class ExecutionOver:
    """An execution has ended and another one is due."""

    state: LineageState
    submission: SubmissionState
    execution: Execution | None


@dataclass(frozen=True)
class JobHeld:
    """A person must decide."""

    state: LineageState


@dataclass(frozen=True)
class JobOver:
    """The job is finished."""

    state: LineageState


@dataclass(frozen=True)
class TakenOver:
    """Another flow run carries the lineage now."""

    state: LineageState
    by: str


@dataclass(frozen=True)
class JobSuperseded:
    """A newer generation took the place of the one that was driven; nothing more is to be done for that one here."""

    state: LineageState


Happening = ExecutionOver | JobHeld | JobOver | TakenOver | JobSuperseded


async def drive(
    supervisor: Supervisor,
    *,
    carrier: str | None,
    after_each: Callable[[Advanced], Awaitable[None]],
    tell: Tell = warn,
) -> Happening:
    """Advance until the execution that is current ends, or the job is held, finished, superseded or carried elsewhere.

    Args:
        supervisor: advances the lineage.
        carrier: the flow run in whose name this is done; None to go on whoever carries it.
        after_each: told of each advance, for progress.
        tell: told of a record that cannot be read when this begins.
    """
    over_before = _count_over(await supervisor.read(tell))
    await supervisor.settle_index()
    while True:
        advanced = await supervisor.advance()
        state = advanced.state
        await after_each(advanced)
        if supervisor.owes:
            # It ends no earlier: nobody else would look for what its own late call may have started.
            await supervisor.clock.sleep(_pause(supervisor, advanced))
            continue
        if isinstance(supervisor.due(state), Overtaken):
            return JobSuperseded(state)
        if carrier is not None and state.carried_by not in (None, carrier):
            return TakenOver(state, str(state.carried_by))
        due = supervisor.due(state)
        if isinstance(due, Done):
            return JobOver(state)
        if isinstance(due, Held) and isinstance(advanced.step, Held):
            return JobHeld(state)
        if _count_over(state) > over_before and not isinstance(due, Append | Finish | Held):
            submission = state.newest
            if submission is not None:
                return ExecutionOver(state, submission, submission.newest)
        if not advanced.moved:
            await supervisor.clock.sleep(_pause(supervisor, advanced))


def _count_over(state: LineageState) -> int:
    """How many executions and landings of this generation have come to their end."""
    ended = sum(1 for _, execution in state.executions if execution.ended is not None)
    return ended + sum(1 for each in state.submissions if each.landing in (Landing.REFUSED, Landing.ABANDONED))


def _pause(supervisor: Supervisor, advanced: Advanced) -> float:
    due = supervisor.capabilities.poll_interval.total_seconds()
    if advanced.wake_at is not None:
        due = min(due, (advanced.wake_at - supervisor.clock.now()).total_seconds())
    return max(due, 0.01)
