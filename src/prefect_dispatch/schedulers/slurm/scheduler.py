"""The scheduler: Slurm's own commands behind the port."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TypeVar

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.names import check_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.python_command import isolated
from prefect_dispatch.schedulers.slurm import answers
from prefect_dispatch.schedulers.slurm.commands import Answer, Commands
from prefect_dispatch.schedulers.slurm.refusals import is_absent, is_disabled, is_over, is_refusal
from prefect_dispatch.schedulers.slurm.script import (
    batch_script,
    default_log,
    describe_option_refusal,
    sbatch_options,
)
from prefect_dispatch.schedulers.slurm.secret_file import delete_command, read_lines, text_of, write_command
from prefect_dispatch.schedulers.slurm.states import meaning_of
from prefect_dispatch.schedulers.slurm.tables import AccountedRun, QueueEntry, comment_of
from prefect_dispatch.schedulers.slurm.view import Look, View, shared_view

SCHEDULER = "slurm"
HELPER = isolated("prefect_dispatch.job.__main__", "start", libraries=False)
"""The running interpreter's own, for clusters whose nodes see the same files."""
STOP_GRACE = timedelta(seconds=30)
"""What a job has beyond its notice period before it is cancelled: its wrapper publishes the last save."""
_JOB_ID = re.compile(r"(\d+)(?:;[^\s;]+)?\Z")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Site:
    """How a site is used.

    Attributes:
        commands: where and how Slurm's commands run.
        options: options of every job, such as ``partition``.
        helper: the command that is ``dispatch-job`` on the nodes.
        log_folder: where logs go that a spec does not name, as the nodes see it; None for the working folder.
        warning_signal: the signal before the time limit; None for none.
        warning_lead: how long before it.
        poll_interval: how often the cluster is asked.
        landing_bound: how long after an ``sbatch`` has ended its job may still turn up.
        restart_bound: how long after an end Slurm's own restart is waited for.
        history: how far back the accounting is asked.
        accounting: False where the site has none.
        accounting_lag: for how long the accounting may lack the end of a run after which the job runs again.
    """

    commands: Commands = field(default_factory=Commands)
    options: Mapping[str, str] = field(default_factory=dict)
    helper: tuple[str, ...] = HELPER
    log_folder: Path | None = None
    warning_signal: str | None = None
    warning_lead: timedelta = timedelta(seconds=60)
    poll_interval: timedelta = timedelta(seconds=30)
    landing_bound: timedelta = timedelta(minutes=2)
    restart_bound: timedelta = timedelta(minutes=2)
    history: timedelta = timedelta(days=30)
    accounting: bool = True
    accounting_lag: timedelta = timedelta(minutes=2)

    @property
    def warning(self) -> tuple[str, int] | None:
        """The warning as ``sbatch`` takes it."""
        if self.warning_signal is None:
            return None
        return self.warning_signal, max(1, round(self.warning_lead.total_seconds()))


class SlurmScheduler:
    """Submits jobs with ``sbatch`` and looks after them with ``squeue``, ``sacct``, ``scontrol`` and ``scancel``.

    Args:
        site: how the site is used.
        view: who asks the cluster; None for the one that all of this process share.
        clock: seconds on a clock that is never set back.
    """

    def __init__(self, site: Site, view: View | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._commands = site.commands
        self._view = view or shared_view(site.commands, site.poll_interval, site.history, site.accounting)
        self._clock = clock
        self._notified: dict[str, float] = {}
        self._lacking: dict[str, tuple[int, float]] = {}
        self._capabilities = Capabilities(
            scheduler=SCHEDULER,
            requeue=True,
            time_limit=True,
            landing_bound=site.landing_bound,
            restart_bound=site.restart_bound,
            observe_bound=max(timedelta(seconds=60), 2 * site.poll_interval),
            submit_bound=max(timedelta(seconds=60), site.commands.time_limit),
            poll_interval=site.poll_interval,
        )

    @property
    def capabilities(self) -> Capabilities:
        """See the port."""
        return self._capabilities

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        """See the port. ``sbatch`` is killed when nobody waits for it any more; its job may be there all the same."""
        check_token(request.token)
        refusal = describe_option_refusal(request.resources) or self._describe_refusal(request)
        if refusal is not None:
            raise SubmitRefused(refusal)
        helper = self._site.helper
        path = os.path.dirname(sys.executable) if helper == HELPER and not self._commands.prefix else None
        log = default_log(request, self._site.log_folder)
        words = sbatch_options(request, self._site.options, log, self._site.warning)
        by_file = request.secrets if self._commands.prefix else {}
        secrets, secret_text = {} if by_file else request.secrets, text_of(by_file)
        reading = read_lines(request.token, once=not request.restarts_allowed) if by_file else []
        script = batch_script(request, helper, path, reading)

        def call(abandoned: Event) -> Answer:
            self._prepare_log(request, log)
            if not request.in_time():
                raise SchedulerError(f"{request.name} comes after it was given up; it is not made")
            if by_file:
                write = write_command(request.token, self._site.history)
                self._commands.run(*write, script=secret_text, abandoned=abandoned).require()
            return self._commands.run("sbatch", *words, script=script, secrets=secrets, abandoned=abandoned)

        answer = await _in_thread(call)
        lines = [found.group(1) for line in answer.output.splitlines() if (found := _JOB_ID.match(line.strip()))]
        if answer.code == 0 and len(lines) == 1:
            return ObjectRef(scheduler=SCHEDULER, id=lines[0], token=request.token)
        refused = answer.is_missing or is_refusal(answer.complaint, answer.code, bool(self._commands.prefix))
        if answer.code != 0 and not lines and refused:
            raise SubmitRefused(answer.told)
        raise SchedulerError(f"{answer.told}; {request.name} is looked for by its token")

    async def find(self, token: str) -> ObjectRef | None:
        """See the port.

        Raises:
            Ambiguous: there is no accounting to tell of jobs that the queue has forgotten, or several jobs carry it.
            SchedulerError: Slurm could not be asked.
        """
        look = await self._view.look(token=check_token(token))
        found = {entry.id for entry in look.queue.values() if entry.token == token}
        if not found:
            look.require_accounting()
            found = {id for id, runs in look.runs.items() for run in runs if run.token == token}
        if len(found) > 1:
            raise Ambiguous(f"jobs {', '.join(sorted(found, key=int))} all carry the token {token}; cancel all but one")
        if found:
            return ObjectRef(scheduler=SCHEDULER, id=found.pop(), token=token)
        if not look.accounting:
            raise Ambiguous(
                f"squeue knows no job with the token {token}, and there is no accounting that would know whether one "
                "has ended: look for it at the site"
            )
        return None

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        """See the port. A job of the same number that does not carry the token is somebody else's."""
        ours = [object for object in objects if object.scheduler == SCHEDULER and object.id.isdigit()]
        if not ours:
            return {}
        look = await self._view.look([object.id for object in ours])
        told = {object: self._observation(object, look) for object in ours}
        for object, observation in told.items():
            if observation is None or observation.state is ObjectState.ENDED:
                self._notified.pop(object.token, None)
                self._lacking.pop(object.token, None)
        return {object: observation for object, observation in told.items() if observation is not None}

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        """See the port. With a notice the wrapper is asked first, and cancelled in a later call if it is still there.

        Before anything else the job is forbidden to run again, and its comment says that its end was asked for, so that
        everyone can tell this stop from somebody else's.
        """
        entry = await self._entry(object)
        if entry is None:
            return
        await self._update(entry, f"Comment={comment_of(object.token, stop_asked=True)}", "Requeue=0")
        asked_at = self._notified.get(object.token)
        period = how.period if how is not None else timedelta(0)
        late = asked_at is not None and self._clock() - asked_at > (period + STOP_GRACE).total_seconds()
        if how is None or late or meaning_of(entry.state).state is not ObjectState.RUNNING:
            await self._change("scancel", object.id)
            if self._commands.prefix:
                # It runs no more. Where nothing was handed over in a file, or it cannot be deleted, nothing follows.
                await self._run(*delete_command(object.token))
            return
        if asked_at is None:
            # The wrapper is the batch script; it gives its program the notice that its submission holds.
            await self._change("scancel", "--batch", "--signal=TERM", object.id)
            self._notified[object.token] = self._clock()

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        """See the port."""
        entry = await self._entry(object)
        if entry is not None:
            await self._update(entry, f"Requeue={int(allowed)}")

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        """See the port. Slurm runs again only what its queue still knows and what may be requeued.

        Raises:
            SubmitRefused: it will not run again.
            SchedulerError: anything else.
        """
        look = await self._view.look([object.id])
        entry = _ours(object, look)
        if entry is None:
            raise SubmitRefused(f"Slurm has forgotten job {object.id}; resubmit it")
        if entry.restart >= expected_restart:
            return
        if meaning_of(entry.state).state is not ObjectState.ENDED:
            raise SchedulerError(f"job {object.id} is {entry.state}: it has to end before it can run again")
        answer = await self._run("scontrol", "requeue", object.id)
        if answer.code != 0:
            if is_absent(answer.complaint) or is_disabled(answer.complaint):
                raise SubmitRefused(answer.told)
            raise SchedulerError(answer.told)

    def log(self, object: ObjectRef) -> str | None:
        """See the port. Only of jobs that were submitted from this machine's files."""
        found = self._log_link(object.token)
        if found is None or not os.path.lexists(found):
            return None
        return os.readlink(found)

    def _describe_refusal(self, request: SubmissionRequest) -> str | None:
        if not self._commands.prefix and not request.workdir.is_dir():
            return f"workdir {str(request.workdir)!r} is not a folder; make it, or name another"
        for name, place in (("workdir", str(request.workdir)), ("log", str(request.log or ""))):
            if "\n" in place:
                return f"{name} {place!r} holds a line break, which Slurm cannot take; name another"
        return None

    def _observation(self, object: ObjectRef, look: Look) -> Observation | None:
        entry = _ours(object, look)
        if answers.needs_accounting(entry):
            look.require_accounting()
        runs = [run for run in look.runs.get(object.id, []) if run.token == object.token]
        if entry is not None and look.accounting and self._may_still_come(entry, runs):
            return answers.await_accounting(entry)
        lead = self._site.warning_lead if self._site.warning_signal is not None else None
        return answers.observe(entry, runs, accounting=look.accounting, warning_lead=lead)

    def _may_still_come(self, entry: QueueEntry, runs: list[AccountedRun]) -> bool:
        """Whether the accounting lacks the end of an earlier run, and has not lacked it for long.

        What is told without it says neither why that run ended nor where it ran.
        """
        if not answers.lacks_earlier_end(entry, runs):
            self._lacking.pop(entry.token, None)
            return False
        now = self._clock()
        restart, since = self._lacking.get(entry.token, (entry.restart, now))
        if restart != entry.restart:
            since = now
        self._lacking[entry.token] = (entry.restart, since)
        return now - since < self._site.accounting_lag.total_seconds()

    async def _entry(self, object: ObjectRef) -> QueueEntry | None:
        """The object in the queue, unless it is not there or over."""
        if object.scheduler != SCHEDULER or not object.id.isdigit():
            return None
        entry = _ours(object, await self._view.look([object.id]))
        over = entry is None or meaning_of(entry.state).state is ObjectState.ENDED
        return None if over else entry

    async def _update(self, entry: QueueEntry, *changes: str) -> None:
        await self._change("scontrol", "update", f"JobId={entry.id}", *changes)

    async def _run(self, *words: str) -> Answer:
        """Run a command, for as long as somebody waits for it: later it would undo what was asked for after it."""
        return await _in_thread(lambda abandoned: self._commands.run(*words, abandoned=abandoned))

    async def _change(self, *words: str) -> None:
        """Run a command that changes a job. One that is gone or over needs no change."""
        answer = await self._run(*words)
        if answer.code != 0 and not (is_absent(answer.complaint) or is_over(answer.complaint)):
            raise SchedulerError(answer.told)

    def _prepare_log(self, request: SubmissionRequest, log: str) -> None:
        """Make the folder of the log, and note where the log is, by the token."""
        link = self._log_link(request.token)
        if link is None:
            return
        try:
            os.makedirs(os.path.dirname(log), exist_ok=True)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            with suppress(FileExistsError):
                os.symlink(log, link)
        except OSError as error:
            raise SubmitRefused(f"log {log}: {error.strerror}; name another, or another log_folder") from None

    def _log_link(self, token: str) -> str | None:
        folder = self._site.log_folder
        return str(folder / "by-token" / token) if folder is not None and not self._commands.prefix else None


def _ours(object: ObjectRef, look: Look) -> QueueEntry | None:
    entry = look.queue.get(object.id)
    return entry if entry is not None and entry.token == object.token else None


async def _in_thread(call: Callable[[Event], T]) -> T:
    """Make a blocking call that ends early once nobody waits for it."""
    abandoned = Event()
    try:
        return await asyncio.to_thread(call, abandoned)
    finally:
        abandoned.set()
