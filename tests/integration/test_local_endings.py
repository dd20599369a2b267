"""How objects of the local scheduler end, with real processes that do not always want to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.schedulers import local, local_object
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_identity import is_alive
from prefect_dispatch.schedulers.local_records import Record, create_once, read_record, stamp
from prefect_dispatch.testing.local_laboratory import COUNTED, LONG, OBEDIENT, STUBBORN, LocalLaboratory


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[LocalLaboratory]:
    laboratory = LocalLaboratory(tmp_path)
    yield laboratory
    await laboratory.close()


class TestPreemption:
    async def test_the_slot_is_free_while_the_old_process_lives_on(self, laboratory: LocalLaboratory) -> None:
        # given a job that ignores SIGTERM, and one that waits for its slot
        linger = timedelta(seconds=1.5)
        scheduler = laboratory.scheduler(linger=linger)
        old = await scheduler.submit(laboratory.request(*STUBBORN, name="old"))
        new = await scheduler.submit(laboratory.request(*STUBBORN, name="new"))
        await laboratory.ready("old")

        # when it is preempted
        began = time.monotonic()
        assert await scheduler.preempt(old)

        # then it has ended, as the scheduler says, and the new one runs beside it
        end = (await laboratory.look(scheduler, old)).ended[0]
        assert (end.cause, end.exit) == (Cause.PREEMPTED, None)
        await laboratory.ready("new")
        assert scheduler.processes(old) and scheduler.processes(new)

        # and it is killed when the linger is over, not before, which changes nothing of what was said
        await laboratory.until(lambda: not scheduler.processes(old), "the old process is gone")
        assert time.monotonic() - began >= linger.total_seconds() - 0.05
        await laboratory.until(laboratory.records(old).exit.exists, "the launcher is done")
        assert (await laboratory.look(scheduler, old)).ended == (end,)
        assert scheduler.processes(new)

    async def test_gives_notice_once(self, laboratory: LocalLaboratory) -> None:
        # given a job that counts its notices
        count = "trap 'echo >> notices' TERM; touch ready-$NAME; while :; do sleep 0.05; done"
        scheduler = laboratory.scheduler(linger=timedelta(seconds=1.5))
        object = await scheduler.submit(laboratory.request("sh", "-c", count))
        await laboratory.ready()

        # when it is preempted, and somebody signals the launcher again
        await scheduler.preempt(object)
        notices = laboratory.workdir / "notices"
        await laboratory.until(notices.exists, "the first notice came")
        os.kill(laboratory.launcher(object), signal.SIGTERM)

        # then it was one to the end
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert notices.read_text() == "\n"

    async def test_lets_a_program_end_in_its_own_time(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler(linger=LONG)
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        assert await scheduler.preempt(object)
        assert not await scheduler.preempt(object)

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.PREEMPTED

    async def test_wakes_the_launcher_and_a_lost_node_does_not(
        self, laboratory: LocalLaboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given two running jobs, and a look at the signals that are sent
        scheduler = laboratory.scheduler(slots=2)
        preempted = await scheduler.submit(laboratory.request(*STUBBORN, name="a"))
        lost = await scheduler.submit(laboratory.request(*STUBBORN, name="b"))
        await laboratory.ready("a")
        await laboratory.ready("b")
        sent: list[tuple[int, int]] = []
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))

            # when one is preempted and the other's node is lost
            await scheduler.preempt(preempted)
            await scheduler.lose_node(lost)

        # then only the first one's launcher was told at once
        pid = laboratory.launcher(preempted)
        assert sent == [(pid, signal.SIGTERM), (pid, signal.SIGCONT)]

    async def test_is_noticed_without_its_signal(self, laboratory: LocalLaboratory) -> None:
        # given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # when the process that preempts it dies between the record and the signal
        asked = {"cause": "preempted", "evidence": "preempted", "notice": True, "kill_after_seconds": 60.0, **stamp()}
        assert create_once(laboratory.records(object).ended, asked)

        # then the launcher passes it on all the same
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()

    async def test_of_what_does_not_run_is_nothing(self, laboratory: LocalLaboratory) -> None:
        # given a queued job and one that has ended
        scheduler = laboratory.scheduler()
        ended = await scheduler.submit(laboratory.request("true"))
        said = await laboratory.until_state(scheduler, ended, ObjectState.ENDED)
        await scheduler.submit(laboratory.request(*STUBBORN))
        queued = await scheduler.submit(laboratory.request(*COUNTED))

        # then neither can be preempted or lost
        for object in (ended, queued):
            assert not await scheduler.preempt(object)
            assert not await scheduler.lose_node(object)
        assert await laboratory.look(scheduler, ended) == said
        assert (await laboratory.look(scheduler, queued)).state is ObjectState.QUEUED

    async def test_an_exit_that_nobody_has_seen_comes_first(self, laboratory: LocalLaboratory) -> None:
        # given a job that exited while nobody asked
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request("true"))
        await laboratory.until(laboratory.records(object).exit.exists, "it exited")

        # when it is preempted, then that is too late
        assert not await scheduler.preempt(object)
        assert (await laboratory.look(scheduler, object)).ended[0].exit == Exit(code=0)

    async def test_a_lost_node_goes_on_without_notice_while_it_lingers(self, laboratory: LocalLaboratory) -> None:
        # given a job that would say so if it got a notice
        scheduler = laboratory.scheduler(linger=timedelta(seconds=1.2))
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # when its node is lost
        assert await scheduler.lose_node(object)

        # then it is told so, it lives on, and is killed without a word
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.NODE_LOST
        assert scheduler.processes(object)
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert not (laboratory.workdir / "noticed").exists()


class TestStop:
    async def test_at_once_kills_promptly(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler(linger=LONG)
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        await scheduler.stop(object, None)

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED

    async def test_with_notice_lets_the_program_save(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler(linger=timedelta(0))
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        await scheduler.stop(object, Notice("TERM", LONG))

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()


class TestShutdown:
    async def test_a_signal_of_somebody_elses_reaches_the_program(self, laboratory: LocalLaboratory) -> None:
        # given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # when the machine shuts down, which begins with SIGTERM for everybody
        os.kill(laboratory.launcher(object), signal.SIGTERM)

        # then the program can save, and it ended by itself
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert (laboratory.workdir / "noticed").exists()
        assert (end.cause, end.exit) == (None, Exit(code=0))


class TestTimeLimit:
    async def test_holds_with_nobody_calling(self, laboratory: LocalLaboratory) -> None:
        # given a job with a time limit that ignores SIGTERM
        scheduler = laboratory.scheduler(linger=timedelta(seconds=0.5))
        limit = Resources(time_limit=timedelta(seconds=1))
        object = await scheduler.submit(laboratory.request(*STUBBORN, resources=limit))
        await laboratory.ready()

        # when nobody calls the scheduler any more, then it is ended and gone
        await laboratory.until(laboratory.records(object).exit.exists, "the launcher is done")
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        observation = await laboratory.look(scheduler, object)
        assert observation.ended[0].cause is Cause.TIMED_OUT and "1s" in observation.ended[0].evidence
        ended_at, started_at = observation.ended[0].ended_at, observation.started_at
        assert ended_at is not None and started_at is not None
        assert timedelta(seconds=0.95) <= ended_at - started_at < timedelta(seconds=10)

    async def test_holds_with_a_launcher_that_hangs(self, laboratory: LocalLaboratory) -> None:
        # given a launcher that is stopped
        scheduler = laboratory.scheduler()
        limit = Resources(time_limit=timedelta(seconds=1))
        object = await scheduler.submit(laboratory.request(*STUBBORN, resources=limit))
        await laboratory.ready()
        os.kill(laboratory.launcher(object), signal.SIGSTOP)

        # then whoever asks after the limit records the end
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.TIMED_OUT


class TestAStop:
    @pytest.mark.parametrize("how", [None, Notice()], ids=["at once", "with a notice"])
    async def test_reaches_a_job_whose_launcher_is_stopped(
        self, laboratory: LocalLaboratory, how: Notice | None
    ) -> None:
        # given
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()
        os.kill(laboratory.launcher(object), signal.SIGSTOP)

        # when
        await scheduler.stop(object, how)

        # then
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is (Cause.STOPPED if how is None else None)
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")

    async def test_has_an_end_with_a_launcher_that_hangs(
        self, laboratory: LocalLaboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given a program that goes on after its notice, and a launcher that is stopped after it was told
        monkeypatch.setattr(local, "STOP_GRACE", timedelta(seconds=0.5))
        monkeypatch.setattr(local_object, "HANG_GRACE", timedelta(seconds=0.5))
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        await scheduler.stop(object, Notice(period=timedelta(0)))
        os.kill(laboratory.launcher(object), signal.SIGSTOP)

        # then whoever asks after the time that it had ends it
        assert (await laboratory.look(scheduler, object)).state is ObjectState.ENDING
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.STOPPED and "had not ended after 1s, and was killed" in end.evidence
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert laboratory.launchers(object) == []


LOOK = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.schedulers.local import LocalScheduler

object = ObjectRef.model_validate_json(sys.argv[2])
seen = asyncio.run(LocalScheduler(Path(sys.argv[1]), 1, timedelta(0)).observe([object]))[object]
print(seen.state, seen.evidence)
"""


NAMESPACES = ("--pid", "--time --boottime=100000", "--time --boottime=-10", "--pid --time --boottime=100000")
"""Where a container may look from, as unshare(1) makes it."""


async def _look_from(namespace: str, laboratory: LocalLaboratory, object: ObjectRef) -> str:
    """What a process in another namespace sees of an object."""
    look = [sys.executable, "-c", LOOK, str(laboratory.state_folder), object.model_dump_json()]
    apart = ["unshare", *namespace.split(), "--fork", "--kill-child"]
    mounted = ["--mount-proc"] if "--pid" in namespace else []
    seen = await asyncio.to_thread(subprocess.run, [*apart, *mounted, *look], capture_output=True, text=True)
    if "unshare:" in seen.stderr:
        pytest.skip(f"a new namespace takes root here: {seen.stderr.strip()}")
    assert seen.returncode == 0, seen.stderr
    return seen.stdout


def _open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


class TestLoss:
    async def test_of_the_launcher_is_a_lost_node_and_takes_the_job_along(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        os.kill(laboratory.launcher(object), signal.SIGKILL)

        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.NODE_LOST and "recorded no exit" in end.evidence
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")

    @pytest.mark.parametrize(
        ("change", "evidence"),
        [
            ({"boot": "an-earlier-boot"}, "the machine was restarted"),
            ({"start_time": 1, "locked": False}, "recorded no exit"),
        ],
    )
    async def test_is_told_by_the_processs_identity(
        self, laboratory: LocalLaboratory, change: dict[str, object], evidence: str
    ) -> None:
        # given a record whose pid lives, but is not that process any more
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        self._tamper(laboratory, object, change)

        # then it is lost
        end = (await laboratory.look(scheduler, object)).ended[0]
        assert end.cause is Cause.NODE_LOST and evidence in end.evidence

    async def test_is_not_told_from_another_machine(self, laboratory: LocalLaboratory) -> None:
        # given an object that another machine started
        scheduler = laboratory.scheduler(slots=1)
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        self._tamper(laboratory, object, {"boot": "another-boot", "host": "another-host"})

        # then nothing is known of it, and it keeps its slot
        observation = await laboratory.look(scheduler, object)
        assert observation.state is ObjectState.UNKNOWN and "another-host" in observation.evidence
        other = await scheduler.submit(laboratory.request(*COUNTED))
        assert (await laboratory.look(scheduler, other)).state is ObjectState.QUEUED

        # and a person can stop it
        await scheduler.stop(object, None)
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED

    @pytest.mark.parametrize("namespace", NAMESPACES)
    async def test_is_told_from_any_namespace(self, laboratory: LocalLaboratory, namespace: str) -> None:
        # given a job with a time limit that is far away
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(
            laboratory.request(*STUBBORN, resources=Resources(time_limit=timedelta(hours=1)))
        )
        await laboratory.ready()

        # then a container sees it run, where its pid is nobody's or the time since boot another one
        seen = await _look_from(namespace, laboratory, object)
        assert seen.startswith("running")

        # and sees that it is lost
        os.kill(laboratory.launcher(object), signal.SIGKILL)
        await laboratory.until(lambda: not laboratory.launchers(object), "the launcher is gone")
        assert "recorded no exit" in await _look_from(namespace, laboratory, object)

    @pytest.mark.parametrize("namespace", NAMESPACES)
    async def test_is_not_told_from_another_namespace_without_a_lock(
        self, laboratory: LocalLaboratory, namespace: str
    ) -> None:
        # given a running job whose launcher could not lock anything
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        self._tamper(laboratory, object, {"locked": False})

        # then a container can tell nothing, and the job goes on
        assert "another namespace" in await _look_from(namespace, laboratory, object)
        assert (await laboratory.look(scheduler, object)).state is ObjectState.RUNNING

    @pytest.mark.parametrize("namespace", NAMESPACES)
    async def test_of_a_start_is_not_told_early_from_another_namespace(
        self, laboratory: LocalLaboratory, namespace: str
    ) -> None:
        # given a launcher that is coming up
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        laboratory.records(object).process.rename(laboratory.folder / "process")

        # then who looks from a container waits for it as long as anybody
        assert (await _look_from(namespace, laboratory, object)).startswith("queued being started")

    async def test_is_seen_although_the_job_s_processes_live_on(self, laboratory: LocalLaboratory) -> None:
        # given a running job, of whose processes none may keep the launcher's lock
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        lock = str(laboratory.records(object).alive)
        # then
        holders = [pid for pid in laboratory.started() if lock in _open_files(pid)]
        assert holders == [laboratory.launcher(object)]

    async def test_of_a_record_can_be_answered_by_a_stop(self, laboratory: LocalLaboratory) -> None:
        # given a running job whose process record was damaged
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        laboratory.records(object).process.write_text("no record")
        assert (await laboratory.look(scheduler, object)).state is ObjectState.UNKNOWN

        # when it is stopped
        await scheduler.stop(object, None)

        # then it ends all the same
        await laboratory.until(lambda: not laboratory.launchers(object), "the launcher has ended the job")

    async def test_is_not_told_of_a_launcher_that_recorded_the_exit_just_now(
        self, laboratory: LocalLaboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given a launcher that records its exit and ends between one look and the next
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        def exits_meanwhile(process: Record, lock: Path) -> bool:
            create_once(laboratory.records(object).exit, {"code": 0, **stamp()})
            return False

        monkeypatch.setattr(local_object, "is_alive", exits_meanwhile)

        # then it is the exit that counts
        assert (await laboratory.look(scheduler, object)).ended[0].exit == Exit(code=0)

    async def test_of_a_job_that_a_shutdown_ends_is_a_preemption(self, laboratory: LocalLaboratory) -> None:
        # given a wrapper that has nothing to say when it is asked to end, as early in its life
        scheduler = laboratory.scheduler()
        deaf = LocalScheduler(laboratory.state_folder, 1, LONG, ("sh", "-c", "touch ready-a; exec sleep 60"))
        object = await deaf.submit(laboratory.request("true"))
        await laboratory.ready()
        # when the machine asks its launcher to end
        os.kill(laboratory.launcher(object), signal.SIGTERM)
        # then
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert (end.cause, end.exit) == (Cause.PREEMPTED, Exit(signal=15))

    def _tamper(self, laboratory: LocalLaboratory, object: ObjectRef, change: dict[str, object]) -> None:
        path = laboratory.records(object).process
        path.write_text(json.dumps({**(read_record(path) or {}), **change}))


class TestWrapper:
    """The same with the real wrapper, which claims, guards and publishes."""

    async def test_runs_a_job_to_its_exit_code(self, laboratory: LocalLaboratory) -> None:
        # given the scheduler as a block makes it
        scheduler = LocalScheduler(laboratory.state_folder, 1, LONG)
        (laboratory.workdir / "root").mkdir()

        # when a job runs
        object = await scheduler.submit(laboratory.request("sh", "-c", "echo $DISPATCH_ATTEMPT >> runs; exit 7"))
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]

        # then it had its attempt, and its exit code comes out
        assert (end.cause, end.exit) == (None, Exit(code=7))
        assert laboratory.runs() == [f"{object.token}-0"]

    @pytest.mark.parametrize("way", ["linger", "launcher killed"])
    async def test_nothing_of_the_program_is_left(self, laboratory: LocalLaboratory, way: str) -> None:
        # given a program that ignores SIGTERM, with a child in a session of its own
        scheduler = LocalScheduler(laboratory.state_folder, 1, timedelta(seconds=1))
        (laboratory.workdir / "root").mkdir()
        script = "setsid sleep 300 & trap '' TERM; touch ready-$NAME; while :; do sleep 0.05; done"
        object = await scheduler.submit(laboratory.request("sh", "-c", script))
        await laboratory.ready()
        assert len(scheduler.processes(object)) >= 2

        # when it is preempted, or its launcher is killed
        if way == "linger":
            await scheduler.preempt(object)
            assert scheduler.processes(object)
        else:
            os.kill(laboratory.launcher(object), signal.SIGKILL)

        # then in the end nothing of it lives
        await laboratory.until(lambda: not laboratory.started(), "everything is gone")
        cause = (await laboratory.look(scheduler, object)).ended[0].cause
        assert cause is (Cause.PREEMPTED if way == "linger" else Cause.NODE_LOST)


def test_a_zombie_is_not_alive() -> None:
    # given a child that has ended and was not waited for
    child = subprocess.Popen(["sleep", "60"])
    record = {"pid": child.pid, "start_time": _start_time(child.pid), **stamp()}
    assert is_alive(record, Path("none")) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    # then it counts as gone, although its pid is still taken
    assert Path(f"/proc/{child.pid}").exists() and is_alive(record, Path("none")) is False
    child.wait()


def _start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
