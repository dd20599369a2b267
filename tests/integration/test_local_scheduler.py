"""The local scheduler with real processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError, SubmitRefused, UsageError
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.schedulers.local_launch import LAUNCHER
from prefect_dispatch.schedulers.local_records import create_once, read_record, stamp
from prefect_dispatch.testing.local_laboratory import BOUND, COUNTED, LONG, OBEDIENT, STUBBORN, LocalLaboratory
from prefect_dispatch.testing.plain_request import plain_request


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[LocalLaboratory]:
    laboratory = LocalLaboratory(tmp_path)
    yield laboratory
    await laboratory.close()


class TestQueue:
    async def test_first_in_first_out(self, laboratory: LocalLaboratory) -> None:
        # given three jobs and one slot
        scheduler = laboratory.scheduler(slots=1)
        objects = [await scheduler.submit(laboratory.request(*COUNTED)) for _ in range(3)]

        # when they have all run
        for object in objects:
            await laboratory.until_state(scheduler, object, ObjectState.ENDED)

        # then it was in the order of their submission, each once
        assert laboratory.runs() == [f"{object.token}-0" for object in objects]

    async def test_no_more_run_than_there_are_slots(self, laboratory: LocalLaboratory) -> None:
        # given four lasting jobs and two slots
        scheduler = laboratory.scheduler(slots=2)
        objects = [await scheduler.submit(laboratory.request(*OBEDIENT, name=f"{n}")) for n in range(4)]
        await laboratory.ready("0")
        await laboratory.ready("1")

        async def states() -> list[str]:
            seen = await scheduler.observe(objects)
            return [seen[object].state.value for object in objects]

        # then two run and two wait
        assert await states() == ["running", "running", "queued", "queued"]

        # when one is stopped, then the third has its slot and the fourth still waits
        await scheduler.stop(objects[1], None)
        await laboratory.ready("2")
        assert await states() == ["running", "ended", "running", "queued"]

    async def test_an_object_that_cannot_be_read_does_not_hold_up_the_others(self, laboratory: LocalLaboratory) -> None:
        # given a running object whose process record is broken, and another that waits
        scheduler = laboratory.scheduler(slots=2)
        broken = await scheduler.submit(laboratory.request(*STUBBORN))
        await laboratory.ready()
        laboratory.records(broken).process.write_text("{")

        # when another job is submitted
        other = await scheduler.submit(laboratory.request(*COUNTED))

        # then it runs, and the broken one is unknown, with the file's name
        await laboratory.until_state(scheduler, other, ObjectState.ENDED)
        observation = await laboratory.look(scheduler, broken)
        assert observation.state is ObjectState.UNKNOWN and "process-0" in observation.evidence

    async def test_an_end_at_a_time_that_is_none_is_unknown(self, laboratory: LocalLaboratory) -> None:
        # given an object whose record of its end tells a time beyond all calendars
        scheduler = laboratory.scheduler()
        broken = await scheduler.submit(laboratory.request("true"))
        await laboratory.until_state(scheduler, broken, ObjectState.ENDED)
        laboratory.records(broken).ended.write_text('{"cause": null, "evidence": "x", "at": 1e300}')

        # then it is unknown, and nobody's supervisor ends
        assert (await laboratory.look(scheduler, broken)).state is ObjectState.UNKNOWN


class TestLaunch:
    async def test_what_a_job_is_given(self, laboratory: LocalLaboratory, monkeypatch: pytest.MonkeyPatch) -> None:
        # given a supervisor with a contract of its own in its environment, and a job with setup lines
        monkeypatch.setenv("DISPATCH_EPOCH", "of somebody else")
        monkeypatch.setenv("DISPATCH_S3_TIMEOUT", "7s")
        scheduler = laboratory.scheduler()
        script = """
            pwd; echo "$GREETING"; echo "$DISPATCH_EPOCH$DISPATCH_RESTART$DISPATCH_S3_TIMEOUT"; echo "$PATH"
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

        # when it has run
        object = await scheduler.submit(request)
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)

        # then it saw its folder, its setup, its restart, this interpreter first on PATH, no input, its arguments whole
        folder, greeting, contract, path, standard_input, argument = (
            (laboratory.folder / "logs" / "x y").read_text().splitlines()
        )
        assert (folder, greeting, contract) == (str(laboratory.workdir), "hello you", "07s")
        assert path.split(":")[0] == str(Path(sys.executable).parent)
        assert (standard_input, argument) == ("/dev/null", "a b")
        assert scheduler.log(object) == str(laboratory.folder / "logs" / "x y")

    async def test_a_setup_line_that_fails_keeps_the_command_from_running(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler()

        object = await scheduler.submit(laboratory.request(*COUNTED, setup=("false",)))

        observation = await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert observation.ended[0].exit == Exit(code=1) and laboratory.runs() == []

    async def test_what_may_be_secret_is_private_and_goes_with_the_end(self, laboratory: LocalLaboratory) -> None:
        # given a running job
        scheduler = laboratory.scheduler()
        object = await scheduler.submit(laboratory.request(*OBEDIENT))
        await laboratory.ready()
        records = laboratory.records(object)
        assert {path.stat().st_mode & 0o777 for path in (records.submission, records.environment)} == {0o600}
        assert records.path.stat().st_mode & 0o777 == 0o700

        # when it has ended, then its environment is gone from the disk
        await scheduler.stop(object, None)
        assert not records.environment.exists()

    async def test_the_launcher_has_only_its_standard_files_and_its_lock(self, laboratory: LocalLaboratory) -> None:
        # given a supervisor with an inheritable file
        with (laboratory.folder / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            scheduler = laboratory.scheduler()
            object = await scheduler.submit(laboratory.request(*STUBBORN))
            await laboratory.ready()

            # then the launcher does not have it, nor the queue's lock, and leads no session of ours
            pid = laboratory.launcher(object)
            opened = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            assert opened == {os.devnull, laboratory.scheduler().log(object), str(laboratory.records(object).alive)}
            assert os.getsid(pid) != os.getsid(0)

    async def test_a_log_that_cannot_be_opened_is_a_failed_launch(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler()
        log = laboratory.folder / "is a folder"
        log.mkdir()

        object = await scheduler.submit(laboratory.request(*COUNTED, log=log))

        end = (await laboratory.look(scheduler, object)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and "is a folder" in end.evidence
        assert laboratory.runs() == []

    async def test_a_log_that_nobody_reads_holds_nobody_up(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler()
        log = laboratory.folder / "fifo"
        os.mkfifo(log)

        object = await asyncio.wait_for(scheduler.submit(laboratory.request(*COUNTED, log=log)), BOUND.total_seconds())

        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.LAUNCH_FAILED

    async def test_a_folder_that_went_away_in_the_queue_is_a_failed_launch(self, laboratory: LocalLaboratory) -> None:
        # given a queued job
        scheduler = laboratory.scheduler()
        first = await scheduler.submit(laboratory.request(*OBEDIENT))
        second = await scheduler.submit(laboratory.request("true"))
        await laboratory.ready()

        # when its folder is renamed before its turn
        laboratory.workdir.rename(laboratory.folder / "elsewhere")
        await scheduler.stop(first, None)

        # then it never ran, and the evidence names the folder
        end = (await laboratory.until_state(scheduler, second, ObjectState.ENDED)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and str(laboratory.workdir) in end.evidence

    async def test_a_launcher_that_comes_too_late_starts_nothing(self, laboratory: LocalLaboratory) -> None:
        # given a queued object of which somebody said that it was never started
        scheduler = laboratory.scheduler()
        await scheduler.submit(laboratory.request(*STUBBORN))
        late = await scheduler.submit(laboratory.request(*COUNTED))
        records = laboratory.records(late)
        create_once(records.launch, stamp())
        create_once(records.process, {"never_started": True, **stamp()})

        # when its launcher comes up after all
        arguments = ("-I", str(LAUNCHER), str(records.path), "0")
        child = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=laboratory.environment())
        assert await child.wait() == 0
        await laboratory.until(lambda: not laboratory.launchers(late), "the launcher is gone")

        # then nothing ran, and it is told as a failed launch
        end = (await laboratory.look(scheduler, late)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED
        assert not records.exit.exists() and laboratory.runs() == []

    async def test_a_launcher_whose_object_has_ended_starts_nothing(self, laboratory: LocalLaboratory) -> None:
        # given an object that was stopped after somebody had set out to start it
        scheduler = laboratory.scheduler()
        await scheduler.submit(laboratory.request(*STUBBORN))
        object = await scheduler.submit(laboratory.request(*COUNTED))
        records = laboratory.records(object)
        environment = records.environment.read_text()
        create_once(records.launch, stamp())
        await scheduler.stop(object, Notice("TERM", LONG))
        records.environment.write_text(environment)

        # when its launcher comes up
        arguments = ("-I", str(LAUNCHER), str(records.path), "0")
        child = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=laboratory.environment())
        assert await child.wait() == 0
        await laboratory.until(lambda: not laboratory.launchers(object), "the launcher is gone")

        # then nothing ran, and it is stopped
        assert laboratory.runs() == [] and "failed" in (read_record(records.exit) or {})
        assert (await laboratory.look(scheduler, object)).ended[0].cause is Cause.STOPPED


REFUSALS = {
    "resources.nodes 2": Resources(nodes=2),
    "resources.tasks_per_node 3": Resources(tasks_per_node=3),
    "resources.gpus 1": Resources(gpus=1),
    "resources.memory 1024": Resources(memory=1024),
    "resources.options partition, qos": Resources(options={"qos": "x", "partition": "low"}),
}


class TestRefusal:
    @pytest.mark.parametrize("words", REFUSALS)
    async def test_of_what_the_machine_does_not_have(self, laboratory: LocalLaboratory, words: str) -> None:
        await self._refused(laboratory, laboratory.request(*COUNTED, resources=REFUSALS[words]), words)

    @pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program", "is-no-program"])
    async def test_of_a_command_that_is_not_there(self, laboratory: LocalLaboratory, program: str) -> None:
        (laboratory.workdir / "is-no-program").touch()
        await self._refused(laboratory, laboratory.request(program), repr(program))

    async def test_of_a_folder_that_is_not_there(self, laboratory: LocalLaboratory) -> None:
        request = plain_request(laboratory.folder / "nowhere", "true")
        await self._refused(laboratory, request, "nowhere")

    async def test_not_of_a_command_that_the_setup_may_bring(self, laboratory: LocalLaboratory) -> None:
        scheduler = laboratory.scheduler()
        request = laboratory.request("my-tool", setup=('PATH="$PWD/bin:$PATH"',))
        (laboratory.workdir / "bin").mkdir()
        (laboratory.workdir / "bin" / "my-tool").write_text("#!/bin/sh\nexit 5\n")
        (laboratory.workdir / "bin" / "my-tool").chmod(0o755)

        object = await scheduler.submit(request)

        assert (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0].exit == Exit(code=5)

    async def _refused(self, laboratory: LocalLaboratory, request: SubmissionRequest, words: str) -> None:
        scheduler = laboratory.scheduler()
        with pytest.raises(SubmitRefused) as refusal:
            await scheduler.submit(request)
        assert words in str(refusal.value) and "\n" not in str(refusal.value)
        assert await scheduler.find(request.token) is None
        assert laboratory.runs() == []

    def test_of_no_slots(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="slots 0"):
            LocalScheduler(tmp_path, 0, LONG)

    async def test_of_a_state_folder_that_is_a_file(self, laboratory: LocalLaboratory) -> None:
        laboratory.state_folder.touch()
        with pytest.raises(SchedulerError, match="state"):
            await laboratory.scheduler().submit(laboratory.request(*COUNTED))


SUBMITTER = """
import asyncio, os, signal, sys, time
from datetime import timedelta
from pathlib import Path
from prefect_dispatch.schedulers import local, local_launch, local_state
from prefect_dispatch.testing.local_laboratory import COUNTED, WRAPPER
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
scheduler = local.LocalScheduler(Path(state), 1, timedelta(seconds=60), WRAPPER)
request = plain_request(Path(workdir), *COUNTED, environment={"LABORATORY": mark}, token=token)
object = asyncio.run(scheduler.submit(request))
print(object.id, flush=True)
"""


class Submitter:
    """A process of its own that submits one job, and may be killed by itself in a gap."""

    def __init__(self, laboratory: LocalLaboratory, token: str, gap: str) -> None:
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
        output, _ = self.process.communicate(timeout=BOUND.total_seconds())
        return self.process.returncode, output.strip()


class TestCrash:
    @pytest.mark.parametrize("gap", ["before-queue-entry", "before-rename"])
    async def test_before_the_object_is_there_leaves_none(self, laboratory: LocalLaboratory, gap: str) -> None:
        # given a submitter that was killed while it made the object
        token = new_token()
        submitter = Submitter(laboratory, token, gap)
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # then there is no object, whoever asks and however often
        scheduler = laboratory.scheduler()
        assert await scheduler.find(token) is None
        assert await scheduler.find(token) is None
        assert laboratory.runs() == []
        assert os.listdir(laboratory.state_folder / "queue") == []

        # and what it left is in nobody's way
        object = await scheduler.submit(laboratory.request(*COUNTED, token=token))
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert laboratory.runs() == [f"{token}-0"]
        assert os.listdir(laboratory.state_folder / "tmp") == []

    @pytest.mark.parametrize("gap", ["before-launch-record", "after-spawn"])
    async def test_around_the_launch_runs_it_once(self, laboratory: LocalLaboratory, gap: str) -> None:
        # given a submitter that was killed after its object had landed
        token = new_token()
        submitter = Submitter(laboratory, token, gap)
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # when another supervisor finds it by its token
        scheduler = laboratory.scheduler()
        object = await scheduler.find(token)

        # then it runs once
        assert object is not None
        end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
        assert end.exit == Exit(code=0)
        assert laboratory.runs() == [f"{token}-0"]

    async def test_between_launch_record_and_launcher_is_a_failed_launch(self, laboratory: LocalLaboratory) -> None:
        # given a submitter that was killed when it had set out to start the job
        token = new_token()
        submitter = Submitter(laboratory, token, "before-spawn")
        submitter.go()
        assert submitter.finish()[0] == -signal.SIGKILL

        # when the bound for the launcher is not over, then the object is still being started
        object = await laboratory.scheduler().find(token)
        assert object is not None
        assert (await laboratory.look(laboratory.scheduler(), object)).state is ObjectState.QUEUED

        # when it is over, then it is told as a failed launch, once and for all, and its slot is free
        hasty = laboratory.scheduler(launch_bound=timedelta(0))
        end = (await laboratory.look(hasty, object)).ended[0]
        assert end.cause is Cause.LAUNCH_FAILED and end.nodes == ()
        other = await hasty.submit(laboratory.request(*COUNTED))
        await laboratory.until_state(laboratory.scheduler(), other, ObjectState.ENDED)
        assert laboratory.runs() == [f"{other.token}-0"]

    async def test_a_call_that_was_given_up_does_nothing_late(self, laboratory: LocalLaboratory) -> None:
        # given a state folder whose lock is held
        scheduler = laboratory.scheduler()
        first = await scheduler.submit(laboratory.request(*COUNTED))
        await laboratory.until_state(scheduler, first, ObjectState.ENDED)
        request = laboratory.request(*COUNTED)
        with (laboratory.state_folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

            # when a submission is given up while it waits for it
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await scheduler.submit(request)

        # then it never lands, however long its thread goes on
        await asyncio.get_running_loop().shutdown_default_executor()
        assert os.listdir(laboratory.state_folder / "objects") == [first.token]
        assert os.listdir(laboratory.state_folder / "queue") == []


class TestAtOnce:
    async def test_several_processes_submit_one_token(self, laboratory: LocalLaboratory) -> None:
        # given three processes about to submit the same token
        token = new_token()
        submitters = [Submitter(laboratory, token, "none") for _ in range(3)]

        # when they do it at once
        for submitter in submitters:
            submitter.go()

        # then all are told of the one object, and it ran once
        code, name = submitters[0].finish()
        assert code == 0 and name.startswith(f"{token}@")
        assert [submitter.finish() for submitter in submitters[1:]] == [(0, name)] * 2
        scheduler = laboratory.scheduler()
        object = ObjectRef(scheduler="local", id=token, token=token)
        await laboratory.until_state(scheduler, object, ObjectState.ENDED)
        assert laboratory.runs() == [f"{token}-0"]
        assert os.listdir(laboratory.state_folder / "queue") == []

    async def test_several_supervisors_move_the_queue_on(self, laboratory: LocalLaboratory) -> None:
        # given jobs that wait behind one that runs
        schedulers = [laboratory.scheduler() for _ in range(6)]
        first = await schedulers[0].submit(laboratory.request(*OBEDIENT))
        waiting = [await schedulers[0].submit(laboratory.request(*COUNTED)) for _ in range(2)]
        await laboratory.ready()

        # when it ends while six supervisors ask again and again
        await asyncio.gather(schedulers[0].stop(first, None), *(scheduler.observe([first]) for scheduler in schedulers))
        give_up = time.monotonic() + BOUND.total_seconds()
        while any(o.state is not ObjectState.ENDED for o in (await schedulers[0].observe(waiting)).values()):
            assert time.monotonic() < give_up
            await asyncio.gather(*(scheduler.observe(waiting) for scheduler in schedulers))

        # then each was launched once
        assert laboratory.runs() == [f"{object.token}-0" for object in waiting]
