"""A supervisor in a process of its own, without Prefect: it opens a lineage, preempts its job once, and carries it on.

Run as a program. Each line of standard input is one activation, as JSON: ``folder``, ``scenario``,
``environment``, ``arms`` (the failpoint for the job of each submission) and ``run_again`` (whether a person lifts its
hold). It is carried out in a forked process, which has everything imported already, and answered by a line with its
wait status. Its exit code is 0 for a job that is over and 75 for one that is held.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect_dispatch import failpoints
from prefect_dispatch.format.deadline import DeadlineTerms
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import CarriedBy, StopRequested
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_cessation import LocalCessation
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.cessation import ask_about_holds
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, JobHeld, JobOver, drive
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.superseding import Asked, decide
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler

LINEAGE = "crash"
MARK = "CRASH_FOLDER"
"""The variable by which every process of a scenario's job is known."""
TRAINER = Path(__file__).with_name("trainer.py")
PATIENCE_SECONDS = 100
HELD = 75
QUICK = {
    "poll_interval": timedelta(seconds=0.06),
    "landing_bound": timedelta(seconds=0.1),
    "clock_skew": timedelta(seconds=0.1),
    "submit_bound": timedelta(seconds=3),
    "observe_bound": timedelta(seconds=0.2),
    "restart_bound": timedelta(seconds=0.3),
}
MARKER = {"kind": "marker"}
SCENARIOS: dict[str, dict[str, Any]] = {
    "folder": {},
    "over": {},
    "state": {"saves": {"kind": "messages"}},
    "stopped": {},
    "suspended": {},
    "long-record": {},
    "time-limit": {"resources": {"time_limit": "1500ms"}},
    "requeue": {},
    "barred": {"saves": {"kind": "explicit", "overwritten": False}},
    "shared": {"shared_checkpoint": True},
    "superseded": {},
}
IN_A_BUCKET = "bucket"
"""The scenario whose root and record are below the URL that the file ``url`` in its folder holds."""
KINDS = {"over": "over", "state": "state", "barred": "barred"}


class QuickLocal(LocalScheduler):
    """The local scheduler with shorter bounds, which arms the jobs that it is told to."""

    def __init__(self, folder: Path, arms: Mapping[str, Mapping[str, str]], poll_interval: timedelta) -> None:
        super().__init__(folder / "state", 1, timedelta(seconds=2), launch_bound=timedelta(seconds=3))
        self._arms = arms
        self._poll_interval = poll_interval

    @property
    def capabilities(self):
        return super().capabilities.model_copy(update={**QUICK, "poll_interval": self._poll_interval})

    async def submit(self, request):
        armed = dict(self._arms.get(str(request.document.submission), {}))
        # The program is not told what begins with DISPATCH_, and this one hands it to the command that it calls.
        armed.update({f"PROGRAMS_{name}": value for name, value in armed.items()})
        # As where no supervisor can tell: the first execution notes what it finds.
        deadline = DeadlineTerms(timedelta(days=1), timedelta(seconds=5))
        document = replace(request.document, identity_from={"place": f"env:{MARK}"}, deadline=deadline)
        return await super().submit(replace(request, document=document, environment={**request.environment, **armed}))


class KeptScripted:
    """The scripted scheduler, kept in a file: what one process asked of it the next one finds."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "scripted"
        self._inner = (
            pickle.loads(self._file.read_bytes())
            if self._file.exists()
            else ScriptedScheduler(SystemClock().now, SCRIPTED)
        )

    @property
    def capabilities(self):
        return SCRIPTED.model_copy(update=QUICK)

    def keep(self) -> None:
        self._file.with_suffix(".new").write_bytes(pickle.dumps(self._inner))
        self._file.with_suffix(".new").replace(self._file)

    def __getattr__(self, name: str):
        port = getattr(self._inner, name)
        if name not in ("submit", "find", "observe", "stop", "set_restarts", "requeue"):
            return port

        async def kept(*given):
            try:
                return await port(*given)
            finally:
                self.keep()

        return kept

    def play(self, object: ObjectRef) -> None:
        """One turn of a cluster: a time limit, then a restart by itself, then success once it may not restart."""
        found = next(each for each in self._inner.objects(object.token) if each.ref == object)
        if found.is_over:
            return
        if found.state is ObjectState.QUEUED:
            self._inner.start(object)
        if found.restart == 0:
            self._inner.end(object, Cause.TIMED_OUT)
        elif found.restart == 1 and found.restarts_allowed:
            self._inner.restart(object)
        elif found.restart == 2 and not found.restarts_allowed:
            self._inner.end(object, exit=Exit(code=0))
        self.keep()


def job_of(folder: Path, scenario: str, environment: Mapping[str, str] | None = None) -> ResolvedJob:
    again = {"budget": 100, "delay": "0s"}
    above = (folder / "url").read_text() if scenario == IN_A_BUCKET else str(folder)
    root, record_root = f"{above}/root", f"{above}/record"
    spec = {
        "lineage": LINEAGE,
        "command": [sys.executable, str(TRAINER), KINDS.get(scenario, "folder"), str(folder / "gate")],
        "environment": {MARK: str(folder), **(environment or {})},
        "store": {"root": root},
        "scheduler": {"type": "local"},
        "saves": MARKER,
        "watch_interval": "30ms",
        "checkpoint_cancelation": {"notify_period": "5s"},
        "recovery": {
            "preempted": {"action": "requeue", "budget": 2},
            "timed_out": {"action": "requeue", "budget": 100},
            "node_lost": {"action": "requeue", "budget": 20},
            "failed": {"action": "resubmit", **again},
            "launch_failed": {"action": "resubmit", **again},
            "vanished": {"action": "resubmit", **again},
        },
        **({"workplace": str(folder / "workplaces")} if scenario == IN_A_BUCKET else SCENARIOS[scenario]),
    }
    return ResolvedJob(
        spec=JobSpec.read(spec, "the job"),
        workdir=str(folder),
        root=root,
        record_root=record_root,
        scheduler={"type": "local"},
    )


def was_interrupted(state: LineageState) -> bool:
    causes = (Cause.PREEMPTED, Cause.TIMED_OUT)
    return any(run.ended is not None and run.ended.cause in causes for _, run in state.executions)


async def activate(folder: Path, scenario: str, arms: Mapping[str, Mapping[str, str]], lift: bool) -> int:
    """One activation of a supervisor, to the job's end or hold; returns what to exit with."""
    clock = SystemClock()
    job = job_of(folder, scenario)
    kept = KeptScripted(folder) if scenario == "requeue" else None
    # The launcher keeps the time limit, and so does whoever looks: here the launcher is to be first.
    poll_interval = timedelta(seconds=1) if scenario == "time-limit" else QUICK["poll_interval"]
    local = QuickLocal(folder, arms, poll_interval)
    scheduler: Scheduler = kept or local
    record = open_record(job.record_root, LINEAGE, clock)
    state = record.refresh()
    if state.finished is None and state.generation == 0:
        state = open_lineage(record, job, plan(job.spec, scheduler.capabilities, root_visible=True))
    if lift and state.hold is not None:
        run_again(record, who="a person")
    root = None if kept is not None else root_view_of(LINEAGE, state)
    supervisor = Supervisor(record, scheduler, root, clock)

    async def after_each(advanced: Advanced) -> None:
        state = advanced.state
        newest = state.newest
        if newest is None or newest.object is None or state.finished is not None:
            return
        if kept is not None:
            kept.play(newest.object)
        elif scenario == "superseded" and state.generation > 0:
            if not any(each.may_run for each in state.obligations):
                (folder / "gate").touch()
        elif was_interrupted(state):
            (folder / "gate").touch()
        elif root is not None and not (folder / "gate").exists() and not (folder / "stay").exists():
            own = [each for each in root.publications() or [] if each.epoch == newest.epoch(0)]
            if own and scenario == "stopped":
                if state.stop is None:
                    await supervisor.append(StopRequested(intent="abandon", who="a person"))
            elif own and scenario == "suspended":
                if state.stop is None:
                    await supervisor.append(StopRequested(intent="suspend", who="a person"))
            elif own and scenario == "superseded":
                supersede(folder, scheduler)
            elif own and scenario != "time-limit":
                await local.preempt(newest.object)

    if scenario == "long-record":
        while (await supervisor.read()).seq < 62:
            await supervisor.append(CarriedBy(flow_run="filler"))
    while isinstance(happening := await drive(supervisor, carrier=None, after_each=after_each), ExecutionOver) or (
        isinstance(happening, JobHeld) and await answered(job, folder, scenario)
    ):
        pass
    if not isinstance(happening, JobOver):
        sys.stderr.write(f"held: {happening.state.hold}\n")
        return HELD
    return 0


def supersede(folder: Path, scheduler: Scheduler) -> None:
    """Have a changed job take the place of the first one, as a person with a process of their own does."""
    job = job_of(folder, "superseded", {"CHANGED": "yes"})
    record = open_record(job.record_root, LINEAGE, SystemClock())
    planned = plan(job.spec, scheduler.capabilities, root_visible=True)
    root = root_view_of(LINEAGE, record.refresh())
    decide(record, job, planned, lambda job: {}, lambda state: root, Asked("a person", request="once", meant=0))


async def answered(job: ResolvedJob, folder: Path, scenario: str) -> bool:
    """Answer a hold that belongs to the scenario: a person a suspension, and a poller that of a shared checkpoint.

    A person answers what the site cannot know.
    """
    clock = SystemClock()
    if scenario == "suspended":
        run_again(open_record(job.record_root, LINEAGE, clock), who="a person")
    if scenario != "shared":
        return scenario == "suspended"
    for _ in range(PATIENCE_SECONDS * 10):
        record = open_record(job.record_root, LINEAGE, clock)
        (polled,) = await ask_about_holds([record], lambda state: LocalCessation(folder / "state"), clock)
        hold = record.refresh().hold
        if hold is None:
            return True
        if polled.answer is None or polled.answer.answer == "unknown":
            run_again(record, hold.opened.hold, who="a person")
            return True
        await clock.sleep(0.1)
    return False


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(asked)
        sys.stdout.write(f"{os.waitpid(pid, 0)[1]}\n")
        sys.stdout.flush()


def become(asked: dict[str, Any]) -> None:
    """Carry out one activation in this process, and end."""
    code = 1
    try:
        folder = Path(asked["folder"])
        log = os.open(folder / "activations.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        signal.alarm(PATIENCE_SECONDS)
        os.environ.update(asked["environment"])
        failpoints.arm(asked["environment"])
        code = asyncio.run(activate(folder, asked["scenario"], asked["arms"], asked["run_again"]))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
