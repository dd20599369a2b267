"""The task whose tries are a job's executions."""

from __future__ import annotations

from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.states import Cancelled, Completed, Failed

from prefect_dispatch.errors import AnotherExecution
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.drive import (
    ExecutionOver,
    Happening,
    JobHeld,
    JobOver,
    JobSuperseded,
    TakenOver,
    drive,
)
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.trouble import Tell, Trouble
from prefect_dispatch.tasks.end_state import EndState
from prefect_dispatch.tasks.events import Announcer
from prefect_dispatch.tasks.progress_report import ProgressReport
from prefect_dispatch.tasks.reporter import Reporter
from prefect_dispatch.tasks.reports import report_execution
from prefect_dispatch.tasks.resuming import superseded_words


def retries_for(state: LineageState) -> int:
    """How many tries the task may need at most: all budgets together, and some for a person's word."""
    if state.opened is None:
        return 0
    rules = [row.stands_for or row.effective for row in state.opened.plan.rows]
    return sum(rule.budget for rule in rules if rule.recovers) + 100


async def only_another_execution(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Retry for another execution alone: what else goes wrong is not the job's to repeat."""
    return isinstance(await state.aresult(raise_on_failure=False), AnotherExecution)


@task(
    name="execute",
    task_run_name="execute-{supervisor.lineage}",
    retries=100,
    retry_delay_seconds=0,
    retry_condition_fn=only_another_execution,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def execute(supervisor: Supervisor, carrier: str | None, reporter: Reporter, announcer: Announcer) -> State[Any]:
    """Carry one execution of a job to its end. One try of this task is one execution.

    Args:
        supervisor: advances the lineage.
        carrier: the flow run in whose name this is done.
        reporter: makes the reports beside it.
        announcer: tells Prefect's events.

    Returns:
        A state that says what became of the job once nothing more is to be run, over, held, or taken over, with that
        :data:`~prefect_dispatch.supervisor.drive.Happening` as its data.

    Raises:
        AnotherExecution: the execution has ended and another one is due.
    """
    logger = get_run_logger()
    progress = ProgressReport(supervisor)
    trouble, faults = Trouble(), set[str]()

    def teller(action: str) -> Tell:
        return lambda text: logger.warning("%s", text, extra={"action": action})

    async def after_each(advanced: Advanced) -> None:
        trouble.note(advanced.trouble, teller("advance.trouble"))
        for fault in supervisor.root.faults if supervisor.root is not None else ():
            if fault not in faults:
                faults.add(fault)
                teller("root.trouble")(fault)
        reporter.soon("progress", progress.update(advanced.state))

    happening = await drive(supervisor, carrier=carrier, after_each=after_each, tell=teller("record.trouble"))
    reporter.soon("last progress", progress.update(happening.state, last=True))
    _announce(announcer, happening)
    epoch, number = _epoch_of(happening), _try_number()
    opened = happening.state.opened
    if not isinstance(happening, JobSuperseded) and opened is not None:
        record = open_record(opened.record_root, supervisor.lineage, supervisor.clock)
        reporter.soon(f"try {number}", report_execution(supervisor, record, epoch, number))
    match happening:
        case ExecutionOver():
            text = _describe(happening)
            logger.info("%s", text, extra={"action": "execution.ended"})
            raise AnotherExecution(text)
        case JobHeld() | JobOver() | TakenOver() | JobSuperseded():
            return state_of(happening)


def state_of(happening: JobHeld | JobOver | TakenOver | JobSuperseded) -> State[Any]:
    """What the task's state tells: it is the job's, so that a program that failed is not shown as completed."""
    match happening:
        case TakenOver():
            return Cancelled(name=EndState.HANDED_OVER, message=f"flow run {happening.by} carries on", data=happening)
        case JobSuperseded():
            return Cancelled(name=EndState.SUPERSEDED, message=superseded_words(happening.state), data=happening)
        case JobHeld():
            hold = happening.state.hold
            return Cancelled(name=EndState.HELD, message=hold.opened.why if hold is not None else "", data=happening)
        case JobOver():
            finished = happening.state.finished
            told = f"{finished.outcome}: {finished.detail}" if finished is not None else ""
            if finished is not None and finished.outcome is Outcome.SUCCEEDED:
                return Completed(message=told, data=happening)
            if finished is not None and finished.outcome is Outcome.STOPPED:
                return Cancelled(name=EndState.STOPPED, message=told, data=happening)
            return Failed(message=told, data=happening)


def _announce(announcer: Announcer, happening: Happening) -> None:
    state = happening.state
    if isinstance(happening, JobSuperseded):
        return
    if not isinstance(happening, TakenOver):
        announcer.ended(state)
    if isinstance(happening, JobHeld) and state.hold is not None:
        announcer.held(state.hold.opened)
    if state.finished is not None:
        announcer.finished(state, state.finished)


def _epoch_of(happening: Happening) -> Epoch | None:
    """The execution that a try has carried."""
    if isinstance(happening, ExecutionOver):
        execution = happening.execution
        return happening.submission.epoch(execution.restart) if execution is not None else None
    newest = happening.state.newest
    return newest.epoch(newest.newest.restart) if newest is not None and newest.newest is not None else None


def _describe(over: ExecutionOver) -> str:
    submission, execution = over.submission, over.execution
    if execution is None or execution.ended is None:
        what = f"submission {submission.n} ({submission.token}) ended as {Cause.LAUNCH_FAILED}"
        return f"{what}: {submission.detail}; another execution follows"
    return f"{submission.epoch(execution.restart)} ended as {execution.ended.cause}; another execution follows"


def _try_number() -> int:
    context = TaskRunContext.get()
    return context.task_run.run_count if context is not None else 1
