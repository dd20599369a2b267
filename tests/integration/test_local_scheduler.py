"""The local scheduler with real processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError, SubmitRefused, UsageError
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState, Observation
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.schedulers import local_object
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_launch import LAUNCHER
from prefect_dispatch.schedulers.local_records import ObjectFolder, Record, create_once, is_alive, read_record, stamp
from prefect_dispatch.testing import plain_wrapper
from prefect_dispatch.testing.plain_request import plain_request

BOUND = 20.0
WRAPPER = (sys.executable, "-I", plain_wrapper.__file__)
LONG = timedelta(seconds=60)

COUNTED = ("sh", "-c", "echo $DISPATCH_ATTEMPT >> runs")
"""Leaves a line for each time that it runs."""
STUBBORN = ("sh", "-c", "trap '' TERM; touch ready-$NAME; while :; do sleep 0.05; done")
"""Ignores SIGTERM and goes on for ever."""
OBEDIENT = ("sh", "-c", "trap 'touch noticed; exit 0' TERM; touch ready-$NAME; while :; do sleep 0.05; done")
"""Says that it got the notice, and exits."""


class Laboratory:
    """A state folder, schedulers over it, and a look at what runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_folder = folder / "state"
        self.workdir = folder / "work folder"
        self.workdir.mkdir()

    def scheduler(
        self, slots: int = 1, linger: timedelta = LONG, launch_bound: timedelta = timedelta(seconds=15)
    ) -> LocalScheduler:
        return LocalScheduler(self.state_folder, slots, linger, WRAPPER, launch_bound=launch_bound)

    def request(self, *command: str, name: str = "a", **more: object):  # type: ignore[no-untyped-def]
        environment = {"NAME": name, "LABORATORY": str(self.folder), **more.pop("environment", {})}  # type: ignore[dict-item]
        return plain_request(self.workdir, *command, environment=environment, **more)  # type: ignore[arg-type]

    def records(self, object: ObjectRef) -> ObjectFolder:
        return ObjectFolder(self.state_folder / "objects" / object.token)

    def runs(self) -> list[str]:
        path = self.workdir / "runs"
        return path.read_text().split() if path.exists() else []

    async def until(self, condition: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + BOUND
        while not condition():
            assert time.monotonic() < give_up, f"not within {BOUND}s: {what}"
            await asyncio.sleep(0.01)

    async def ready(self, name: str = "a") -> None:
        await self.until(lambda: (self.workdir / f"ready-{name}").exists(), f"{name} is ready")

    async def until_state(self, scheduler: LocalScheduler, object: ObjectRef, state: ObjectState) -> Observation:
        give_up = time.monotonic() + BOUND
        while (observation := await self.look(scheduler, object)).state is not state:
            assert time.monotonic() < give_up, f"{object} is {observation}, not {state}"
            await asyncio.sleep(0.01)
        return observation

    async def look(self, scheduler: LocalScheduler, object: ObjectRef) -> Observation:
        return (await scheduler.observe([object]))[object]

    def started(self) -> list[int]:
        """Every living process that this laboratory started: its mark is in the environment of all of them."""
        mark = f"LABORATORY={self.folder}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environment(pid)]

    def launchers(self, object: ObjectRef) -> list[int]:
        path = str(self.records(object).path).encode()
        return [pid for pid in self.started() if path in _arguments(pid)]

    async def close(self) -> None:
        for pid in self.started():
            if str(LAUNCHER).encode() in _arguments(pid):
                os.kill(pid, signal.SIGKILL)
        await self.until(lambda: not self.started(), "everything started is gone")


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[Laboratory]:
    laboratory = Laboratory(tmp_path)
    yield laboratory
    await laboratory.close()


class TestQueue:
    async def test_first_in_first_out(self, laboratory: Laboratory) -> None:
        # Given three jobs and one slot
        scheduler = laboratory.scheduler(slots=1)
        objects = [await scheduler.submit(laboratory.request(*COUNTED)) for _ in range(3)]

        # When they have all run
        for object in objects:
            await laboratory.until_state(scheduler, object, ObjectState.ENDED)

        # Then it was in the order of their submission, each once
        assert laboratory.runs() == [f"{object.token}-0" for object in objects]

    async def test_no_more_run_than_there_are_slots(self, laboratory: Laboratory) -> None:
        # Given four lasting jobs and two slots
        scheduler = laboratory.scheduler(slots=2)
        objects = [await scheduler.submit(laboratory.request(*OBEDIENT, name=f"{n}")) for n in range(4)]
        await laboratory.ready("0")
        await laboratory.ready("1")

        async def states() -> list[str]:
            seen = await scheduler.observe(objects)
            return [seen[object].state.value for object in objects]

        # Then two run and two wait
        assert await states() == ["running", "running", "queued", "queued"]

        # When one is stopped, then the third has its slot and the fourth still waits
        await scheduler.stop(objects[1], None)
        await laboratory.ready("2")
        assert await states() == ["running", "ended", "running", "queued"]

    async def test_an_object_that_cannot_be_read_does_not_hold_up_the_others(self, laboratory: Laboratory) -> None:
        # Given a running object whose process record is broken, and another that waits
        scheduler = laboratory.scheduler(slots=2)
        broken = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        laboratory.records(broken).process.write_text("{")

        # When another job is submitted
        other = await scheduler.submit(laboratory.request(*COUNTED))

        # Then it runs, and the broken one is unknown, with the file's name
        await laboratory.until_state(scheduler, other, ObjectState.ENDED)
        observation = await laboratory.look(scheduler, broken)
        assert observation.state is ObjectState.UNKNOWN and "process-0" in observation.evidence


class TestLaunch:
    async def test_what_a_job_is_given(self, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
        # Given a supervisor with a contract of its own in its environment, and a job with setup lines
        monkeypatch.setenv("DISPATCH_EPOCH", "of somebody else")
        scheduler = laboratory.scheduler()
        script = """
            pwd; echo "$GREETING"; echo "$DISPATCH_EPOCH$DISPATCH_RESTART"; echo "$PATH"
            readlink /proc/self/fd/0; echo "$1"
        """
        request = laboratory.request(
            "sh",
            "-c",
            script,
            "sh",
            "a b",
            setup=("GREETING='hello you'", "export GREETING"),
            log=laboratory.folder / "logs" / "x y",
        )

        # When it has run
        object = await scheduler.submit(request)
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)

        # Then it saw its folder, its setup, its restart, this interpreter first on PATH, no input, its arguments whole
        folder, greeting, contract, path, standard_input, argument = (
            (laboratory.folder / "logs" / "x y").read_text().splitlines()
        )
        assert (folder, greeting, contract) == (str(laboratory.workdir), "hello you", "0")
        assert path.split(":")[0] == str(Path(sys.executable).parent)
        assert (standard_input, argument) == ("/dev/null", "a b")
        assert scheduler.log(object) == str(laboratory.folder / "logs" / "x y")

    async def test_a_setup_line_that_fails_keeps_the_command_from_running(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler()

        object = await scheduler.submit(laboratory.request(*COUNTED, setup=("false",)))

        observation = await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert observation.ended[0].exit == Exit(code=1) and laboratory.runs() == []

    async def test_what_may_be_secret_is_private_and_goes_with_the_end(self, laboratory: Laboratory) -> None:
        # Given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()
        records = laboratory.records(object)
        assert {path.stat().st_mode & 0o777 for path in (records.submission, records.environment)} == {0o600}
        assert records.path.stat().st_mode & 0o777 == 0o700

        # When it has ended, then its environment is gone from the disk
        await scheduler.stop(object, None)
        assert not records.environment.exists()

    async def test_the_launcher_has_only_its_three_files(self, laboratory: Laboratory) -> None:
        # Given a supervisor with an inheritable file
        with (laboratory.folder / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            scheduler = laboratory.scheduler()
            object = await scheduler.submit(laboratory.request(*STUBBORN))
            await laboratory.ready()

            # Then the launcher does not have it, nor the lock, and leads no session of ours
            pid = (read_record(laboratory.records(object).process) or {})["pid"]
            assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
            assert os.getsid(pid) != os.getsid(0)

    async def test_a_log_that_cannot_be_opened_is_a_failed_launch(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler()
        log = laboratory.folder / "is a folder"
        log.mkdir()

        object = await scheduler.submit(laboratory.request(*COUNTED, log=log))

        end = (await laboratory.look(scheduler, object)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and "is a folder" in end.evidence
        assert laboratory.runs() == []

    async def test_a_log_that_nobody_reads_holds_nobody_up(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler()
        log = laboratory.folder / "fifo"
        os.mkfifo(log)

        object = await asyncio.wait_for(scheduler.submit(laboratory.request(*COUNTED, log=log)), BOUND)

        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.LAUNCH_FAILED

    async def test_a_folder_that_went_away_in_the_queue_is_a_failed_launch(self, laboratory: Laboratory) -> None:
        # Given a queued job
        scheduler = laboratory.scheduler()
        first = await scheduler.submit(laboratory.request(*OBEDIENT))
        second = await scheduler.submit(laboratory.request("true"))
        await laboratory.ready()

        # When its folder is renamed before its turn
        laboratory.workdir.rename(laboratory.folder / "elsewhere")
        await scheduler.stop(first, None)

        # Then it never ran, and the evidence names the folder
        end = (await laboratory.until_state(scheduler, second, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and str(laboratory.workdir) in end.evidence

    async def test_a_launcher_that_comes_too_late_starts_nothing(self, laboratory: Laboratory) -> None:
        # Given a queued object of which somebody said that it was never started
        scheduler = laboratory.scheduler()
        await scheduler.submit(laboratory.request(*STUBBORN))
        late = await scheduler.submit(laboratory.request(*COUNTED))
        records = laboratory.records(late)
        create_once(records.launch, stamp())
        create_once(records.process, {"never_started": True, **stamp()})

        # When its launcher comes up after all
        arguments = ("-I", str(LAUNCHER), str(records.path), "0")
        child = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env={"LABORATORY": str(laboratory.folder)}
        )
        assert await child.wait() == 0
        await laboratory.until(lambda: not laboratory.launchers(late), "the launcher is gone")

        # Then nothing ran, and it is told as a failed launch
        end = (await laboratory.look(scheduler, late)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED
        assert not records.exit.exists() and laboratory.runs() == []

    async def test_a_launcher_whose_object_has_ended_starts_nothing(self, laboratory: Laboratory) -> None:
        # Given an object that was stopped after somebody had set out to start it
        scheduler = laboratory.scheduler()
        await scheduler.submit(laboratory.request(*STUBBORN))
        object = await scheduler.submit(laboratory.request(*COUNTED))
        records = laboratory.records(object)
        environment = records.environment.read_text()
        create_once(records.launch, stamp())
        await scheduler.stop(object, Notice("TERM", LONG))
        records.environment.write_text(environment)

        # When its launcher comes up
        arguments = ("-I", str(LAUNCHER), str(records.path), "0")
        child = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env={"LABORATORY": str(laboratory.folder)}
        )
        assert await child.wait() == 0
        await laboratory.until(lambda: not laboratory.launchers(object), "the launcher is gone")

        # Then nothing ran, and it is stopped
        assert laboratory.runs() == [] and "failed" in (read_record(records.exit) or {})
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED


REFUSALS = {
    "resources.nodes 2": {"resources": Resources(nodes=2)},
    "resources.tasks_per_node 3": {"resources": Resources(tasks_per_node=3)},
    "resources.gpus 1": {"resources": Resources(gpus=1)},
    "resources.memory 1024": {"resources": Resources(memory=1024)},
    "resources.options partition, qos": {"resources": Resources(options={"qos": "x", "partition": "low"})},
}


class TestRefusal:
    @pytest.mark.parametrize("words", REFUSALS)
    async def test_of_what_the_machine_does_not_have(self, laboratory: Laboratory, words: str) -> None:
        await self._refused(laboratory, laboratory.request(*COUNTED, **REFUSALS[words]), words)

    @pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program", "is-no-program"])
    async def test_of_a_command_that_is_not_there(self, laboratory: Laboratory, program: str) -> None:
        (laboratory.workdir / "is-no-program").touch()
        await self._refused(laboratory, laboratory.request(program), repr(program))

    async def test_of_a_folder_that_is_not_there(self, laboratory: Laboratory) -> None:
        request = plain_request(laboratory.folder / "nowhere", "true")
        await self._refused(laboratory, request, "nowhere")

    async def test_not_of_a_command_that_the_setup_may_bring(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler()
        request = laboratory.request("my-tool", setup=('PATH="$PWD/bin:$PATH"',))
        (laboratory.workdir / "bin").mkdir()
        (laboratory.workdir / "bin" / "my-tool").write_text("#!/bin/sh\nexit 5\n")
        (laboratory.workdir / "bin" / "my-tool").chmod(0o755)

        object = await scheduler.submit(request)

        assert (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0].exit == Exit(code=5)

    async def _refused(self, laboratory: Laboratory, request, words: str) -> None:  # type: ignore[no-untyped-def]
        scheduler = laboratory.scheduler()
        with pytest.raises(SubmitRefused) as refusal:
            await scheduler.submit(request)
        assert words in str(refusal.value) and "\n" not in str(refusal.value)
        assert await scheduler.find(request.token) is None
        assert laboratory.runs() == []

    def test_of_no_slots(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="slots 0"):
            LocalScheduler(tmp_path, 0, LONG)

    async def test_of_a_state_folder_that_is_a_file(self, laboratory: Laboratory) -> None:
        laboratory.state_folder.touch()
        with pytest.raises(SchedulerError, match="state"):
            await laboratory.scheduler().submit(laboratory.request(*COUNTED))


SUBMITTER = """
import asyncio, os, signal, sys, time
from datetime import timedelta
from pathlib import Path
from prefect_dispatch.schedulers import local, local_launch, local_state
from prefect_dispatch.testing import plain_wrapper
from prefect_dispatch.testing.plain_request import plain_request

state, workdir, token, gap, mark = sys.argv[1:]

def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

def patch(owner, name):
    setattr(owner, name, die)

GAPS = {
    "none": lambda: None,
    "before-queue-entry": lambda: patch(local_state.LocalState, "_enqueue"),
    "before-rename": lambda: patch(os, "rename"),
    "before-launch-record": lambda: patch(local, "launch"),
    "before-spawn": lambda: patch(local_launch, "_spawn"),
    "after-spawn": lambda: patch(local, "wait_for"),
}
GAPS[gap]()
print("ready", flush=True)
sys.stdin.readline()
wrapper = (sys.executable, "-I", plain_wrapper.__file__)
scheduler = local.LocalScheduler(Path(state), 1, timedelta(seconds=60), wrapper)
command = ("sh", "-c", "echo $DISPATCH_ATTEMPT >> runs")
request = plain_request(Path(workdir), *command, environment={"LABORATORY": mark}, token=token)
object = asyncio.run(scheduler.submit(request))
print(object.id, flush=True)
"""


class Submitter:
    """A process of its own that submits one job, and may be killed by itself in a gap."""

    def __init__(self, laboratory: Laboratory, token: str, gap: str) -> None:
        arguments = (laboratory.state_folder, laboratory.workdir, token, gap, laboratory.folder)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUBMITTER, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=BOUND)
        return self.process.returncode, output.strip()


class TestCrash:
    @pytest.mark.parametrize("gap", ["before-queue-entry", "before-rename"])
    async def test_before_the_object_is_there_leaves_none(self, laboratory: Laboratory, gap: str) -> None:
        # Given a submitter that was killed while it made the object
        token = new_token()
        submitter = Submitter(laboratory, token, gap)
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # Then there is no object, whoever asks and however often
        scheduler = laboratory.scheduler()
        assert await scheduler.find(token) is None
        assert await scheduler.find(token) is None
        assert laboratory.runs() == []
        assert os.listdir(laboratory.state_folder / "queue") == []

        # And what it left is in nobody's way
        object = await scheduler.submit(laboratory.request(*COUNTED, token=token))
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert laboratory.runs() == [f"{token}-0"]
        assert os.listdir(laboratory.state_folder / "tmp") == []

    @pytest.mark.parametrize("gap", ["before-launch-record", "after-spawn"])
    async def test_around_the_launch_runs_it_once(self, laboratory: Laboratory, gap: str) -> None:
        # Given a submitter that was killed after its object had landed
        token = new_token()
        submitter = Submitter(laboratory, token, gap)
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # When another supervisor finds it by its token
        scheduler = laboratory.scheduler()
        object = await scheduler.find(token)

        # Then it runs once
        assert object is not None
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.exit == Exit(code=0)
        assert laboratory.runs() == [f"{token}-0"]

    async def test_between_launch_record_and_launcher_is_a_failed_launch(self, laboratory: Laboratory) -> None:
        # Given a submitter that was killed when it had set out to start the job
        token = new_token()
        submitter = Submitter(laboratory, token, "before-spawn")
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # When the bound for the launcher is not over, then the object is still being started
        object = await laboratory.scheduler().find(token)
        assert object is not None
        assert (await laboratory.look(laboratory.scheduler(), object)).state is ObjectState.QUEUED

        # When it is over, then it is told as a failed launch, once and for all, and its slot is free
        hasty = laboratory.scheduler(launch_bound=timedelta(0))
        end = (await laboratory.look(hasty, object)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and end.nodes == ()
        other = await hasty.submit(laboratory.request(*COUNTED))
        await laboratory.until_state(laboratory.scheduler(), other, ObjectState.ENDED)
        assert laboratory.runs() == [f"{other.token}-0"]

    async def test_a_call_that_was_given_up_while_it_waited_does_nothing_late(self, laboratory: Laboratory) -> None:
        # Given a state folder whose lock is held
        scheduler = laboratory.scheduler()
        assert await scheduler.find(new_token()) is None
        request = laboratory.request(*COUNTED)
        with (laboratory.state_folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

            # When a submission is given up while it waits for it
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await scheduler.submit(request)

        # Then it never lands, however long its thread goes on
        await asyncio.get_running_loop().shutdown_default_executor()
        assert os.listdir(laboratory.state_folder / "objects") == []
        assert os.listdir(laboratory.state_folder / "queue") == []


class TestAtOnce:
    async def test_several_processes_submit_one_token(self, laboratory: Laboratory) -> None:
        # Given three processes about to submit the same token
        token = new_token()
        submitters = [Submitter(laboratory, token, "none") for _ in range(3)]

        # When they do it at once
        for submitter in submitters:
            submitter.go()

        # Then all are told of the one object, and it ran once
        assert [submitter.finish() for submitter in submitters] == [(0, token)] * 3
        scheduler = laboratory.scheduler()
        object = ObjectRef(scheduler="local", id=token, token=token)
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert laboratory.runs() == [f"{token}-0"]
        assert os.listdir(laboratory.state_folder / "queue") == []

    async def test_several_supervisors_move_the_queue_on(self, laboratory: Laboratory) -> None:
        # Given jobs that wait behind one that runs
        schedulers = [laboratory.scheduler() for _ in range(6)]
        first = await schedulers[0].submit(laboratory.request(*OBEDIENT))
        waiting = [await schedulers[0].submit(laboratory.request(*COUNTED)) for _ in range(2)]
        await laboratory.ready()

        # When it ends while six supervisors ask again and again
        await asyncio.gather(schedulers[0].stop(first, None), *(scheduler.observe([first]) for scheduler in schedulers))
        give_up = time.monotonic() + BOUND
        while any(o.state is not ObjectState.ENDED for o in (await schedulers[0].observe(waiting)).values()):
            assert time.monotonic() < give_up
            await asyncio.gather(*(scheduler.observe(waiting) for scheduler in schedulers))

        # Then each was launched once
        assert laboratory.runs() == [f"{object.token}-0" for object in waiting]


class TestPreemption:
    async def test_the_slot_is_free_while_the_old_process_lives_on(self, laboratory: Laboratory) -> None:
        # Given a job that ignores SIGTERM, and one that waits for its slot
        linger = timedelta(seconds=1.5)
        scheduler = laboratory.scheduler(linger=linger)
        old = await scheduler.submit(laboratory.request(*STUBBORN, name="old"))
        new = await scheduler.submit(laboratory.request(*STUBBORN, name="new"))
        await laboratory.ready("old")

        # When it is preempted
        began = time.monotonic()
        assert await scheduler.preempt(old)

        # Then it has ended, as the scheduler says, and the new one runs beside it
        end = (await laboratory.look(scheduler, old)).ended[0]
        assert (end.cause, end.exit) == (Cause.PREEMPTED, None)
        await laboratory.ready("new")
        assert scheduler.processes(old) and scheduler.processes(new)

        # And it is killed when the linger is over, not before, which changes nothing of what was said
        await laboratory.until(lambda: not scheduler.processes(old), "the old process is gone")
        assert time.monotonic() - began >= linger.total_seconds() - 0.05
        await laboratory.until(laboratory.records(old).exit.exists, "the launcher is done")
        assert (await laboratory.look(scheduler, old)).ended == (end,)
        assert scheduler.processes(new)

    async def test_gives_notice_once(self, laboratory: Laboratory) -> None:
        # Given a job that counts its notices
        count = "trap 'echo >> notices' TERM; touch ready-$NAME; while :; do sleep 0.05; done"
        scheduler = laboratory.scheduler(linger=timedelta(seconds=1.5))
        object = await scheduler.submit(laboratory.request("sh", "-c", count))
        await laboratory.ready()

        # When it is preempted, and somebody signals the launcher again
        await scheduler.preempt(object)
        notices = laboratory.workdir / "notices"
        await laboratory.until(notices.exists, "the first notice came")
        os.kill((read_record(laboratory.records(object).process) or {})["pid"], signal.SIGTERM)

        # Then it was one to the end
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert notices.read_text() == "\n"

    async def test_lets_a_program_end_in_its_own_time(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler(linger=LONG)
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        assert await scheduler.preempt(object)
        assert not await scheduler.preempt(object)

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.PREEMPTED

    async def test_wakes_the_launcher_and_a_lost_node_does_not(
        self, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Given two running jobs, and a look at the signals that are sent
        scheduler = laboratory.scheduler(slots=2)
        preempted = await scheduler.submit(laboratory.request(*STUBBORN, name="a"))
        lost = await scheduler.submit(laboratory.request(*STUBBORN, name="b"))
        await laboratory.ready("a")
        await laboratory.ready("b")
        sent: list[tuple[int, int]] = []
        with monkeypatch.context() as patch:
            patch.setattr(local_object.os, "kill", lambda pid, number: sent.append((pid, number)))

            # When one is preempted and the other's node is lost
            await scheduler.preempt(preempted)
            await scheduler.lose_node(lost)

        # Then only the first one's launcher was told at once
        pid = (read_record(laboratory.records(preempted).process) or {})["pid"]
        assert sent == [(pid, signal.SIGTERM)]

    async def test_is_noticed_without_its_signal(self, laboratory: Laboratory) -> None:
        # Given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # When the process that preempts it dies between the record and the signal
        asked = {"cause": "preempted", "evidence": "preempted", "notice": True, "kill_after_seconds": 60.0, **stamp()}
        assert create_once(laboratory.records(object).ended, asked)

        # Then the launcher passes it on all the same
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()

    async def test_of_what_does_not_run_is_nothing(self, laboratory: Laboratory) -> None:
        # Given a queued job and one that has ended
        scheduler = laboratory.scheduler()
        ended = await scheduler.submit(laboratory.request("true"))
        said = await laboratory.until_state(scheduler, ended, ObjectState.ENDED)
        await scheduler.submit(laboratory.request(*STUBBORN))
        queued = await scheduler.submit(laboratory.request(*COUNTED))

        # Then neither can be preempted or lost
        for object in (ended, queued):
            assert not await scheduler.preempt(object)
            assert not await scheduler.lose_node(object)
        assert await laboratory.look(scheduler, ended) == said
        assert (await laboratory.look(scheduler, queued)).state is ObjectState.QUEUED

    async def test_an_exit_that_nobody_has_seen_comes_first(self, laboratory: Laboratory) -> None:
        # Given a job that exited while nobody asked
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request("true"))
        await laboratory.until(laboratory.records(object).exit.exists, "it exited")

        # When it is preempted, then that is too late
        assert not await scheduler.preempt(object)
        assert (await laboratory.look(scheduler, object)).ended[0].exit == Exit(code=0)

    async def test_a_lost_node_goes_on_without_notice_until_the_linger_is_over(self, laboratory: Laboratory) -> None:
        # Given a job that would say so if it got a notice
        scheduler = laboratory.scheduler(linger=timedelta(seconds=1.2))
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # When its node is lost
        assert await scheduler.lose_node(object)

        # Then it is told so, it lives on, and is killed without a word
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.NODE_LOST
        assert scheduler.processes(object)
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert not (laboratory.workdir / "noticed").exists()


class TestStop:
    async def test_at_once_kills_promptly(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler(linger=LONG)
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        await scheduler.stop(object, None)

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED

    async def test_with_notice_lets_the_program_save(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler(linger=timedelta(0))
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        await scheduler.stop(object, Notice("TERM", LONG))

        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        assert (laboratory.workdir / "noticed").exists()


class TestShutdown:
    async def test_a_signal_of_somebody_elses_reaches_the_program(self, laboratory: Laboratory) -> None:
        # Given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()

        # When the machine shuts down, which begins with SIGTERM for everybody
        os.kill((read_record(laboratory.records(object).process) or {})["pid"], signal.SIGTERM)

        # Then the program can save, and it ended by itself
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert (laboratory.workdir / "noticed").exists()
        assert (end.cause, end.exit) == (None, Exit(code=0))


class TestTimeLimit:
    async def test_holds_with_nobody_calling(self, laboratory: Laboratory) -> None:
        # Given a job with a time limit that ignores SIGTERM
        scheduler = laboratory.scheduler(linger=timedelta(seconds=0.5))
        limit = Resources(time_limit=timedelta(seconds=1))
        object = await scheduler.submit(laboratory.request(*STUBBORN, resources=limit))
        await laboratory.ready()

        # When nobody calls the scheduler any more, then it is ended and gone
        await laboratory.until(laboratory.records(object).exit.exists, "the launcher is done")
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")
        observation = await laboratory.look(scheduler, object)
        assert observation.ended[0].cause is Cause.TIMED_OUT and "1s" in observation.ended[0].evidence
        ended_at, started_at = observation.ended[0].ended_at, observation.started_at
        assert ended_at is not None and started_at is not None
        assert timedelta(seconds=0.95) <= ended_at - started_at < timedelta(seconds=10)

    async def test_holds_with_a_launcher_that_hangs(self, laboratory: Laboratory) -> None:
        # Given a launcher that is stopped
        scheduler = laboratory.scheduler()
        limit = Resources(time_limit=timedelta(seconds=1))
        object = await scheduler.submit(laboratory.request(*STUBBORN, resources=limit))
        await laboratory.ready()
        os.kill((read_record(laboratory.records(object).process) or {})["pid"], signal.SIGSTOP)

        # Then whoever asks after the limit records the end
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.TIMED_OUT


class TestLoss:
    async def test_of_the_launcher_is_a_lost_node_and_takes_the_job_along(self, laboratory: Laboratory) -> None:
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        os.kill((read_record(laboratory.records(object).process) or {})["pid"], signal.SIGKILL)

        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.NODE_LOST and "recorded no exit" in end.evidence
        await laboratory.until(lambda: not scheduler.processes(object), "the program is gone")

    @pytest.mark.parametrize(
        ("change", "evidence"),
        [
            ({"boot": "an-earlier-boot"}, "the machine was restarted"),
            ({"start_time": 1}, "recorded no exit"),
        ],
    )
    async def test_is_told_by_the_processs_identity(
        self, laboratory: Laboratory, change: dict[str, object], evidence: str
    ) -> None:
        # Given a record whose pid lives, but is not that process any more
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        self._tamper(laboratory, object, change)

        # Then it is lost
        end = (await laboratory.look(scheduler, object)).ended[0]
        assert end.cause is Cause.NODE_LOST and evidence in end.evidence

    async def test_is_not_told_from_another_machine(self, laboratory: Laboratory) -> None:
        # Given an object that another machine started
        scheduler = laboratory.scheduler(slots=1)
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        self._tamper(laboratory, object, {"boot": "another-boot", "host": "another-host"})

        # Then nothing is known of it, and it keeps its slot
        observation = await laboratory.look(scheduler, object)
        assert observation.state is ObjectState.UNKNOWN and "another-host" in observation.evidence
        other = await scheduler.submit(laboratory.request(*COUNTED))
        assert (await laboratory.look(scheduler, other)).state is ObjectState.QUEUED

        # And a person can stop it
        await scheduler.stop(object, None)
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED

    async def test_is_not_told_of_a_launcher_that_recorded_the_exit_just_now(
        self, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Given a launcher that records its exit and ends between one look and the next
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()

        def exits_meanwhile(process: Record) -> bool:
            create_once(laboratory.records(object).exit, {"code": 0, **stamp()})
            return False

        monkeypatch.setattr(local_object, "is_alive", exits_meanwhile)

        # Then it is the exit that counts
        assert (await laboratory.look(scheduler, object)).ended[0].exit == Exit(code=0)

    def _tamper(self, laboratory: Laboratory, object: ObjectRef, change: dict[str, object]) -> None:
        path = laboratory.records(object).process
        path.write_text(json.dumps({**(read_record(path) or {}), **change}))


class TestWrapper:
    """The same with the real wrapper, which claims, guards and publishes."""

    async def test_runs_a_job_to_its_exit_code(self, laboratory: Laboratory) -> None:
        # Given the scheduler as a block makes it
        scheduler = LocalScheduler(laboratory.state_folder, 1, LONG)
        (laboratory.workdir / "root").mkdir()

        # When a job runs
        object = await scheduler.submit(laboratory.request("sh", "-c", "echo $DISPATCH_ATTEMPT >> runs; exit 7"))
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]

        # Then it had its attempt, and its exit code comes out
        assert (end.cause, end.exit) == (None, Exit(code=7))
        assert laboratory.runs() == [f"{object.token}-0"]

    @pytest.mark.parametrize("way", ["linger", "launcher killed"])
    async def test_nothing_of_the_program_is_left(self, laboratory: Laboratory, way: str) -> None:
        # Given a program that ignores SIGTERM, with a child in a session of its own
        scheduler = LocalScheduler(laboratory.state_folder, 1, timedelta(seconds=1))
        (laboratory.workdir / "root").mkdir()
        script = "setsid sleep 300 & trap '' TERM; touch ready-$NAME; while :; do sleep 0.05; done"
        object = await scheduler.submit(laboratory.request("sh", "-c", script))
        await laboratory.ready()
        assert len(scheduler.processes(object)) >= 2

        # When it is preempted, or its launcher is killed
        if way == "linger":
            await scheduler.preempt(object)
            assert scheduler.processes(object)
        else:
            os.kill((read_record(laboratory.records(object).process) or {})["pid"], signal.SIGKILL)

        # Then in the end nothing of it lives
        await laboratory.until(lambda: not laboratory.started(), "everything is gone")
        cause = (await laboratory.look(scheduler, object)).ended[0].cause
        assert cause is (Cause.PREEMPTED if way == "linger" else Cause.NODE_LOST)


def test_a_zombie_is_not_alive() -> None:
    # Given a child that has ended and was not waited for
    child = subprocess.Popen(["sleep", "60"])
    record = {"pid": child.pid, "start_time": _start_time(child.pid), **stamp()}
    assert is_alive(record)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    # Then it counts as gone, although its pid is still taken
    assert Path(f"/proc/{child.pid}").exists() and not is_alive(record)
    child.wait()


def _start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
