"""The local cessation signal, with real processes: what lives is seen, what is gone is said, the rest is unknown."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.schedulers import local_cessation
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_cessation import LocalCessation
from prefect_dispatch.testing.local_laboratory import LONG, STUBBORN, LocalLaboratory
from support.marked_processes import kill_each


class Preempted:
    """A job that the scheduler calls ended and whose processes live on."""

    def __init__(self, laboratory: LocalLaboratory, scheduler: LocalScheduler, object: ObjectRef, node: str) -> None:
        self.laboratory = laboratory
        self.scheduler = scheduler
        self.object = object
        self.ended = EndedObject(
            lineage="digits", object=object, restart=0, attempt=attempt_of(object.token, 0), nodes=(node,)
        )

    async def ask(self) -> CessationAnswer:
        return await LocalCessation(self.laboratory.state_folder).ask(self.ended)

    async def end(self) -> None:
        """Let its processes end, and its launcher say so."""
        kill_each(self.scheduler.processes(self.object))
        await self.laboratory.until(self.laboratory.records(self.object).exit.exists, "the launcher is done")
        # One that is being killed has no environment any more, and is still there.
        await self.laboratory.until(lambda: not self.laboratory.started(), "all are gone")
        while (await self.ask()).answer == "running":
            # One that is being killed has no environment any more, and is still there.
            await asyncio.sleep(0.05)

    def rewrite(self, **fields: Any) -> None:
        """Have the launcher's record say something else."""
        path = self.laboratory.records(self.object).process
        record = {**json.loads(path.read_bytes()), **fields}
        path.write_text(json.dumps({name: value for name, value in record.items() if value is not None}))


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[LocalLaboratory]:
    laboratory = LocalLaboratory(tmp_path)
    yield laboratory
    await laboratory.close()


@pytest.fixture
async def preempted(laboratory: LocalLaboratory) -> Preempted:
    scheduler = laboratory.scheduler(linger=LONG)
    object = await scheduler.submit(laboratory.request(*STUBBORN))
    await laboratory.ready()
    (node,) = (await laboratory.look(scheduler, object)).nodes
    await scheduler.preempt(object)
    return Preempted(laboratory, scheduler, object, node)


async def test_what_lingers_runs_and_what_is_gone_has_ceased(preempted: Preempted) -> None:
    # given a job that the scheduler calls ended
    found = await preempted.ask()
    assert found.answer == "running", found
    # when its last process is gone
    await preempted.end()
    # then that is what it says, again and again
    assert (await preempted.ask()).answer == "ceased"
    assert (await preempted.ask()).answer == "ceased"


async def test_a_process_that_left_group_session_and_parent_is_known_by_its_attempt(preempted: Preempted) -> None:
    # given one that nobody ended, and that has nothing else to do with the job any more
    environment = {"DISPATCH_ATTEMPT": preempted.ended.attempt, "PATH": os.environ["PATH"]}
    await preempted.end()
    left = spawn("sleep", "600", env=environment)
    try:
        # then it is what lives
        found = await preempted.ask()
        assert found.answer == "running" and str(left.pid) in found.detail
    finally:
        left.kill()
        left.wait()
    assert (await preempted.ask()).answer == "ceased"


async def test_a_child_with_a_cleared_environment_is_known_by_its_parent(preempted: Preempted) -> None:
    script = "env -i sleep 600 & wait"
    environment = {"DISPATCH_ATTEMPT": preempted.ended.attempt, "PATH": os.environ["PATH"]}
    await preempted.end()
    left = spawn("sh", "-c", script, env=environment)
    try:
        await preempted.laboratory.until(lambda: _children(left.pid), "the child runs")
        found = await preempted.ask()
        assert found.answer == "running" and str(_children(left.pid)[0]) in found.detail
    finally:
        os.killpg(left.pid, signal.SIGKILL)
        left.wait()


def spawn(*command: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process in a session of its own."""
    return subprocess.Popen(command, env=env, start_new_session=True)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_launcher_that_left_no_exit_leaves_it_unknown(preempted: Preempted) -> None:
    # given that launcher and all were killed
    os.kill(preempted.laboratory.launcher(preempted.object), signal.SIGKILL)
    await preempted.laboratory.until(lambda: not preempted.laboratory.started(), "all are gone")
    # then nothing is seen, and that is not enough
    found = await preempted.ask()
    assert found.answer == "unknown" and "left no exit" in found.detail


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"boot": "another"}, "was restarted"),
        ({"pid_namespace": "pid:[1]"}, "PID namespace"),
        ({"pid_namespace": None}, "PID namespace"),
        ({"time_namespace": "time:[1]"}, "time namespace"),
        ({"time_namespace": None}, "time namespace"),
        ({"host": "elsewhere"}, "elsewhere"),
        ({"pid": None}, "no launcher"),
    ],
)
async def test_what_cannot_be_seen_from_here_is_unknown(preempted: Preempted, fields: dict, why: str) -> None:
    await preempted.end()
    preempted.rewrite(**fields)
    found = await preempted.ask()
    assert found.answer == "unknown" and why in found.detail, found


async def test_a_record_on_another_host_is_unknown_by_that_hosts_name(preempted: Preempted) -> None:
    await preempted.end()
    preempted.rewrite(host="elsewhere")
    preempted.ended = EndedObject(**{**vars(preempted.ended), "nodes": ("elsewhere",)})
    found = await preempted.ask()
    assert found.answer == "unknown" and "ask there" in found.detail


async def test_a_record_that_cannot_be_read_is_unknown(preempted: Preempted) -> None:
    await preempted.end()
    preempted.laboratory.records(preempted.object).process.write_text("{")
    assert (await preempted.ask()).answer == "unknown"


async def test_an_object_of_another_state_folder_is_unknown(preempted: Preempted, tmp_path: Path) -> None:
    await preempted.end()
    found = await LocalCessation(tmp_path / "other").ask(preempted.ended)
    assert found.answer == "unknown"


async def test_a_younger_process_that_hides_its_environment_leaves_it_unknown(
    preempted: Preempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a process of the job's user that began after it and does not let itself be read (prctl(2), PR_SET_DUMPABLE)
    await preempted.end()
    hidden = spawn("sleep", "600", env={"PATH": os.environ["PATH"]})
    words = local_cessation._words

    def refuse(pid: int, file: str) -> set[bytes]:
        if pid == hidden.pid:
            raise PermissionError(13, "Permission denied")
        return words(pid, file)

    monkeypatch.setattr(local_cessation, "_words", refuse)
    try:
        # then it may be the job's
        found = await preempted.ask()
        assert found.answer == "unknown" and str(hidden.pid) in found.detail
    finally:
        hidden.kill()
        hidden.wait()
    assert (await preempted.ask()).answer == "ceased"


async def test_another_user_may_not_see_everything(preempted: Preempted, monkeypatch: pytest.MonkeyPatch) -> None:
    await preempted.end()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 12345)
    found = await preempted.ask()
    assert found.answer == "unknown" and "may be hidden" in found.detail


async def test_while_a_guardian_clears_up_it_has_not_ceased(laboratory: LocalLaboratory) -> None:
    # given an object whose exit is recorded while a process with its submission on the command line lives on
    scheduler = laboratory.scheduler(linger=timedelta(seconds=0.1))
    object = await scheduler.submit(laboratory.request("true"))
    await laboratory.until(laboratory.records(object).exit.exists, "it is over")
    await laboratory.until(lambda: not laboratory.started(), "all are gone")
    (node,) = (await laboratory.look(scheduler, object)).nodes
    guardian = spawn("sh", "-c", "sleep 600; :", "--submission", str(laboratory.records(object).submission))
    over = Preempted(laboratory, scheduler, object, node)
    try:
        assert (await over.ask()).answer == "running"
    finally:
        os.killpg(guardian.pid, signal.SIGKILL)
        guardian.wait()
    assert (await over.ask()).answer == "ceased"
