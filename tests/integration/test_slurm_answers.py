"""What the Slurm scheduler makes of answers, errors and silence, with commands that say what the test wants."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.names import new_token
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.schedulers.local_identity import start_time
from prefect_dispatch.testing.plain_request import plain_request
from support.fake_slurm import FakeSlurm, accounted, queued
from support.waiting import until

TOKEN = new_token()


def job(id: int = 7, token: str = TOKEN) -> ObjectRef:
    return ObjectRef(scheduler="slurm", id=str(id), token=token)


async def look(fake: FakeSlurm, object: ObjectRef | None = None, **how):
    object = object or job()
    return (await fake.scheduler(**how).observe([object])).get(object)


async def test_a_thousand_jobs_of_many_supervisors_cost_one_squeue_per_interval(fake):
    # given a thousand jobs, each looked after on its own, as often as the interval says
    interval = timedelta(seconds=1)
    objects = [job(number, new_token()) for number in range(1000)]
    fake.says("squeue", *(queued(int(object.id), object.token) for object in objects))
    scheduler = fake.scheduler(interval)
    began = time.monotonic()
    seen: dict[ObjectRef, int] = dict.fromkeys(objects, 0)

    async def supervise(object: ObjectRef) -> None:
        while time.monotonic() - began < 6:
            (observation,) = (await scheduler.observe([object])).values()
            assert observation.state is ObjectState.RUNNING
            seen[object] += 1
            await asyncio.sleep(interval.total_seconds())

    # when that goes on for some intervals
    await asyncio.gather(*(supervise(object) for object in objects))
    # then all were answered again and again, and the cluster was asked about once per interval, but for the first time
    intervals = (time.monotonic() - began) / interval.total_seconds()
    assert min(seen.values()) >= 2
    assert len(fake.calls("squeue")) <= intervals + 3
    assert fake.calls("sacct") == []


async def test_what_needs_the_accounting_is_asked_for_in_one_sacct(fake):
    # given jobs that have left the queue
    objects = [job(number, new_token()) for number in range(50)]
    fake.says("sacct", *(accounted(int(object.id), object.token, "FAILED", "7:0") for object in objects))
    # when all are asked for at once
    scheduler = fake.scheduler(timedelta(seconds=10))
    answers = await asyncio.gather(*(scheduler.observe([object]) for object in objects))
    # then
    assert all(answer[object].ended[0].exit.code == 7 for answer, object in zip(answers, objects, strict=True))
    assert len(fake.calls("squeue")) == len(fake.calls("sacct")) == 1
    (call,) = fake.calls("sacct")
    assert call.startswith(f"-D -X -P -n --user={os.getuid()} -o JobIDRaw,")
    assert call.endswith(f" -j {','.join(object.id for object in objects)}")


async def test_nobody_is_told_what_was_true_before_he_asked(fake):
    # given an answer that is on its way
    fake.says("squeue", queued(7, TOKEN, "PENDING"))
    place = fake.folder
    fake.does(
        "squeue",
        f"cat {place}/squeue.says; touch {place}/printed; until [ -e {place}/go ]; do sleep 0.05; done; exit 0\n",
    )
    scheduler = fake.scheduler()
    first = asyncio.create_task(scheduler.observe([job()]))
    await asyncio.to_thread(until, (place / "printed").exists)
    # when the job starts, and somebody else asks
    fake.says("squeue", queued(7, TOKEN, "RUNNING"))
    later = asyncio.create_task(scheduler.observe([job()]))
    await asyncio.sleep(0)
    (place / "go").touch()
    second = await later
    # then he is told so
    assert second[job()].state is ObjectState.RUNNING
    assert (await first)[job()].state is ObjectState.QUEUED


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING"])
async def test_another_users_job_of_the_same_number_is_not_ours(fake, state):
    fake.says("squeue", queued(7, new_token(), state))
    fake.says("sacct", accounted(7, new_token(), "COMPLETED"))
    assert await look(fake) is None


async def test_preempted_and_then_completed_are_two_runs_of_one_job(fake):
    fake.says("sacct", accounted(7, TOKEN, "COMPLETED", submit=1796065000), accounted(7, TOKEN, "PREEMPTED"))
    seen = await look(fake)
    assert (seen.state, seen.restart) == (ObjectState.ENDED, 1)
    assert [(end.restart, end.cause) for end in seen.ended] == [(0, Cause.PREEMPTED), (1, None)]


async def test_a_run_that_is_older_than_the_history_is_counted_all_the_same(fake):
    # given a job that ran for longer than the accounting is asked back, and was done at its second run
    old, new = accounted(7, TOKEN, "PREEMPTED", submit=1796000000), accounted(7, TOKEN, "COMPLETED")
    fake.does("sacct", f"case \" $* \" in *' -S '*) echo '{new}';; *) echo '{old}'; echo '{new}';; esac\n")
    # when somebody looks for another job at the same time
    scheduler = fake.scheduler(timedelta(seconds=10))
    seen, other = await asyncio.gather(scheduler.observe([job()]), scheduler.find(new_token()))
    # then it ended as restart 1
    assert other is None and seen[job()].restart == 1
    assert [(end.restart, end.cause, end.exit.code) for end in seen[job()].ended] == [
        (0, Cause.PREEMPTED, 0),
        (1, None, 0),
    ]
    # and that is so while the queue still knows it
    fake.says("squeue", queued(7, TOKEN, "COMPLETED", restart=1))
    seen = await look(fake)
    assert [(end.restart, end.nodes) for end in seen.ended] == [(0, ("n1",)), (1, ("n1",))]


async def test_runs_of_which_some_are_lost_are_given_no_numbers(fake):
    # given a job in its fourth run, of whose earlier ones the accounting has but one, and will have no more
    fake.says("squeue", queued(7, TOKEN, "RUNNING", restart=3))
    fake.says("sacct", accounted(7, TOKEN, "PREEMPTED"))
    # when / then
    seen = await look(fake, lag=timedelta(0))
    assert (seen.state, seen.restart, seen.ended) == (ObjectState.RUNNING, 3, ())


async def test_the_history_is_asked_for_whole_days_and_no_less(fake):
    await fake.scheduler(history=timedelta(days=1, hours=12)).find(TOKEN)
    (call,) = fake.calls("sacct")
    assert "-S now-2days" in call


async def test_restarts_that_ended_between_two_looks_are_all_told(fake):
    fake.says("squeue", queued(7, TOKEN, "RUNNING", restart=3))
    fake.says("sacct", *(accounted(7, TOKEN, "PREEMPTED", submit=1796060000 + 500 * number) for number in range(3)))
    seen = await look(fake)
    assert (seen.state, seen.restart, [end.restart for end in seen.ended]) == (ObjectState.RUNNING, 3, [0, 1, 2])


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
async def test_the_end_of_the_run_before_is_waited_for(fake, state):
    # given a job that is to run again, or does, before the accounting has the end of the run before
    fake.says("squeue", queued(7, TOKEN, state, restart=1))
    fake.says("sacct", accounted(7, TOKEN, "RUNNING"))
    assert (await look(fake)).state is ObjectState.ENDING
    # when the accounting has it, then all is told
    fake.says("sacct", accounted(7, TOKEN, "NODE_FAIL"), accounted(7, TOKEN, "PENDING", submit=1796065000))
    seen = await look(fake)
    assert seen.state is {"PENDING": ObjectState.QUEUED, "RUNNING": ObjectState.RUNNING}[state]
    assert [(end.restart, end.cause, end.nodes) for end in seen.ended] == [(0, Cause.NODE_LOST, ("n1",))]
    # and an accounting that never gets it is not waited for without end
    fake.says("sacct")
    seen = await look(fake, lag=timedelta(0))
    told = {"PENDING": ObjectState.QUEUED, "RUNNING": ObjectState.RUNNING}[state]
    assert (seen.state, seen.restart, seen.ended) == (told, 1, ())


async def test_a_lost_node_with_exit_0_is_no_success(fake):
    fake.says("squeue", queued(7, TOKEN, "NODE_FAIL", exit="0:0"))
    seen = await look(fake)
    assert seen.ended[0].cause is Cause.NODE_LOST


async def test_failed_with_exit_0_is_no_success(fake):
    fake.says("squeue", queued(7, TOKEN, "FAILED", exit="0:0"))
    assert (await look(fake)).ended[0].cause is Cause.FAILED


async def test_who_cancelled_a_job_is_waited_for_unless_it_was_us(fake):
    # given a job that somebody cancelled, which the accounting does not have yet
    fake.says("squeue", queued(7, TOKEN, "CANCELLED"))
    fake.says("sacct", accounted(7, TOKEN, "RUNNING"))
    assert (await look(fake)).state is ObjectState.ENDING
    # when it has it, then it is told
    fake.says("sacct", accounted(7, TOKEN, "CANCELLED by 1000"))
    assert (await look(fake)).ended[0].evidence == "CANCELLED by 1000"
    # and what we asked for needs no accounting
    fake.says("squeue", queued(7, TOKEN, "CANCELLED", stop=True))
    fake.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    end = (await look(fake)).ended[0]
    assert end.cause is Cause.STOPPED and end.evidence == "CANCELLED, after we asked for its end"


async def test_a_stale_account_of_a_job_that_the_queue_has_forgotten_is_unknown(fake):
    fake.says("sacct", accounted(7, TOKEN, "RUNNING"))
    seen = await look(fake)
    assert seen.state is ObjectState.UNKNOWN and "RUNNING" in seen.evidence


async def test_a_word_of_a_later_version_is_unknown_in_the_queue_and_in_the_accounts(fake):
    fake.says("squeue", queued(7, TOKEN, "HIBERNATING"))
    seen = await look(fake)
    assert seen.state is ObjectState.UNKNOWN and "HIBERNATING" in seen.evidence
    fake.says("squeue")
    fake.says("sacct", accounted(7, TOKEN, "DISSOLVED"))
    seen = await look(fake)
    assert seen.state is ObjectState.UNKNOWN and "DISSOLVED" in seen.evidence


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        ("squeue", "slurm_load_jobs error: Socket timed out on send/recv operation"),
        ("sacct", "sacct: error: Problem talking to the database: Connection refused"),
    ],
)
async def test_an_outage_is_no_answer_and_is_over_when_it_is_over(fake, name, complaint):
    # given
    fake.fails(name, complaint)
    # when / then
    scheduler = fake.scheduler()
    for _ in range(2):
        with pytest.raises(SchedulerError, match=complaint[-20:].replace("(", r"\(").replace(")", r"\)")):
            await scheduler.observe([job()])
        with pytest.raises(SchedulerError):
            await scheduler.find(TOKEN)
    # and afterwards all is known again
    fake.works(name)
    assert await scheduler.find(TOKEN) is None


async def test_an_outage_of_the_accounting_hides_no_running_job(fake):
    fake.says("squeue", queued(7, TOKEN))
    fake.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    scheduler = fake.scheduler()
    told, other = await asyncio.gather(
        scheduler.observe([job()]), scheduler.observe([job(8, new_token())]), return_exceptions=True
    )
    assert told[job()].state is ObjectState.RUNNING
    assert isinstance(other, SchedulerError)
    assert await scheduler.find(TOKEN) == job()


async def test_garbage_is_no_answer(fake):
    fake.says("squeue", "Welcome to the cluster!", queued(7, TOKEN))
    with pytest.raises(SchedulerError, match="Welcome"):
        await look(fake)


async def test_a_command_that_hangs_is_killed_with_what_it_started(fake):
    # given
    fake.does("squeue", f"sleep 300 & echo $! >{fake.folder}/child; wait\n")
    # when
    with pytest.raises(SchedulerError, match="no answer within 1s"):
        await look(fake, within=timedelta(seconds=1))
    # then nothing of it is left
    child = int((fake.folder / "child").read_text())
    until(lambda: start_time(child) is None)


async def test_without_accounting_what_is_not_in_the_queue_is_ambiguous(fake):
    # given a site whose sacct says that there is none
    fake.fails("sacct", "Slurm accounting storage is disabled")
    scheduler = fake.scheduler()
    # when / then
    with pytest.raises(Ambiguous, match="no accounting"):
        await scheduler.find(TOKEN)
    assert (await scheduler.observe([job()]))[job()].state is ObjectState.UNKNOWN
    # and what is in the queue is told with its end
    fake.says("squeue", queued(7, TOKEN, "FAILED", exit="7:0"))
    assert await scheduler.find(TOKEN) == job()
    assert (await scheduler.observe([job()]))[job()].ended[0].exit.code == 7
    assert len(fake.calls("sacct")) == 1


async def test_two_jobs_of_one_token_are_for_a_person(fake):
    fake.says("squeue", queued(7, TOKEN), queued(9, TOKEN))
    with pytest.raises(Ambiguous, match="jobs 7, 9"):
        await fake.scheduler().find(TOKEN)


@pytest.mark.parametrize(
    ("printed", "complaint", "code"),
    [
        ("12", "sbatch: error: Something went wrong", 1),
        ("", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 1),
        ("", "", 0),
        ("12\n13", "", 0),
        ("", "sbatch: error: Batch job submission failed: Something new", 1),
    ],
)
async def test_an_sbatch_that_does_not_tell_is_looked_for_and_not_refused(fake, tmp_path, printed, complaint, code):
    fake.does("sbatch", f"cat >/dev/null; printf '%s' '{printed}'; echo '{complaint}' >&2; exit {code}\n")
    with pytest.raises(SchedulerError, match="looked for by its token") as error:
        await fake.scheduler().submit(plain_request(tmp_path, "true"))
    assert not isinstance(error.value, SubmitRefused)


async def test_an_sbatch_that_nobody_waits_for_any_more_is_killed(fake, tmp_path):
    # given
    place = fake.folder
    fake.does("sbatch", f"echo $$ >{place}/new; mv {place}/new {place}/pid; exec sleep 300\n")
    # when its caller gives up
    scheduler = fake.scheduler(within=timedelta(minutes=5))
    submission = asyncio.create_task(scheduler.submit(plain_request(tmp_path, "true")))
    await asyncio.to_thread(until, (place / "pid").exists)
    submission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submission
    # then
    pid = int((place / "pid").read_text())
    await asyncio.to_thread(until, lambda: start_time(pid) is None)


async def test_a_request_that_others_have_given_up_is_not_made(fake, tmp_path):
    late = replace(plain_request(tmp_path, "true"), in_time=lambda: False)
    with pytest.raises(SchedulerError, match="not made"):
        await fake.scheduler().submit(late)
    assert fake.calls("sbatch") == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"requeue": ""}, "recovery"),
        ({"job-name": "x"}, "token"),
        ({"time": "4:00"}, "'4:00' is 4min"),
        ({"time": "tomorrow"}, "no time limit"),
        ({"--x": "y"}, "no long option"),
        ({"comment": "x"}, "token"),
        ({"comm": "x"}, "comm: it may be read as comment: it carries the submission's token"),
        ({"reque": ""}, "recovery"),
        ({"no-req": ""}, "recovery"),
        ({"tim": "4:00"}, "write the whole name"),
        ({"tasks-per-node": "2"}, "tasks_per_node"),
        ({"constraint": "a\nb"}, "line break"),
    ],
)
async def test_options_that_would_undo_ours_are_refused_before_anything_is_asked(fake, tmp_path, options, why):
    request = replace(plain_request(tmp_path, "true"), resources=Resources(options=options))
    with pytest.raises(SubmitRefused, match=why):
        await fake.scheduler().submit(request)
    assert fake.calls("sbatch") == []


async def test_secrets_are_in_no_command_line(fake, tmp_path):
    # given
    request = replace(plain_request(tmp_path, "true"), secrets={"SECRET": "hush"})
    fake.does("sbatch", f'printf %s "$SECRET" >{fake.folder}/env; cat >{fake.folder}/script\n')
    fake.says("sbatch", "12")
    # when
    await fake.scheduler().submit(request)
    # then
    assert (fake.folder / "env").read_text() == "hush"
    assert "hush" not in (fake.folder / "script").read_text() + fake.calls("sbatch")[0]


def in_shell(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", script], env={**os.environ, "HOME": str(home)}, capture_output=True, text=True)


@pytest.fixture
def ssh(tmp_path):
    """An ssh that does what ssh does, one line of text for a shell on the other side, and tells of each line."""
    ssh = tmp_path / "ssh"
    home = tmp_path / "home"
    home.mkdir()
    ssh.write_text(
        f"#!/bin/sh\nshift\nprintf '%s\\n' \"$*\" >>{tmp_path}/lines; env >>{tmp_path}/environments\n"
        f'HOME={home}; export HOME; exec sh -c "$*"\n'
    )
    ssh.chmod(0o755)
    return ssh


@pytest.mark.parametrize("again", [False, True])
async def test_behind_a_prefix_secrets_come_through_standard_input_into_a_file_of_the_users_own(
    fake, tmp_path, ssh, again
):
    # given a job with a secret, which may run again or not
    value = "hush 'q' \"d\" $HOME\nline"
    request = replace(
        plain_request(tmp_path, "true", restarts_allowed=again), secrets={"SECRET": value, "OTHER": "é hush"}
    )
    fake.does("sbatch", f"cat >{fake.folder}/script\n")
    fake.says("sbatch", "12")
    kept = tmp_path / "home" / ".prefect-dispatch" / "secrets"
    # when it is submitted behind ssh
    scheduler = fake.scheduler(prefix=(str(ssh), "login"))
    object = await scheduler.submit(request)
    # then nothing but that file holds it
    file = kept / request.token
    assert (kept.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert list(kept.iterdir()) == [file]
    for told in ("lines", "environments"):
        assert "hush" not in (tmp_path / told).read_text()
    script = (fake.folder / "script").read_text()
    assert "hush" not in script
    # and the batch script reads it, and leaves it only where the job may run again
    reading = script[: script.index("DISPATCH_RESTART")] + 'printf "%s|%s" "$SECRET" "$OTHER"\n'
    for _ in range(2 if again else 1):
        read = in_shell(reading, tmp_path / "home")
        assert (read.returncode, read.stdout) == (0, f"{value}|é hush"), read.stderr
    assert file.exists() == again
    # and a stop takes it away
    fake.says("squeue", queued(12, request.token))
    await scheduler.stop(object, None)
    assert not file.exists()
    assert in_shell(reading, tmp_path / "home").returncode == 74


async def test_secrets_that_come_only_in_part_start_no_job(fake, tmp_path):
    # given a connection that is cut off
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nshift\nHOME={tmp_path}; export HOME; head -c 20 | sh -c "$*"\n')
    ssh.chmod(0o755)
    request = replace(plain_request(tmp_path, "true"), secrets={"SECRET": "hush" * 20})
    # when
    with pytest.raises(SchedulerError, match="only in part"):
        await fake.scheduler(prefix=(str(ssh), "login")).submit(request)
    # then
    assert fake.calls("sbatch") == []
    assert list((tmp_path / ".prefect-dispatch" / "secrets").iterdir()) == []


async def test_a_secret_whose_name_no_shell_sets_is_refused_behind_a_prefix(fake, tmp_path):
    request = replace(plain_request(tmp_path, "true"), secrets={"A-B": "hush"})
    with pytest.raises(SubmitRefused, match="A-B"):
        await fake.scheduler(prefix=("env",)).submit(request)
    assert fake.calls("sbatch") == []


async def test_what_would_change_an_answer_is_not_inherited(fake, monkeypatch):
    for name in ("SQUEUE_STATES", "SLURM_JOB_ID", "SACCT_FORMAT", "SBATCH_PARTITION", "PREFECT_API_KEY", "DISPATCH_X"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    fake.does("squeue", f"env >{fake.folder}/env\n")
    await look(fake)
    inherited = dict(line.partition("=")[::2] for line in (fake.folder / "env").read_text().splitlines())
    assert inherited["SLURM_TIME_FORMAT"] == "%s" and inherited["SLURM_CONF"] == "/etc/slurm.conf"
    assert not {
        "SQUEUE_STATES",
        "SLURM_JOB_ID",
        "SACCT_FORMAT",
        "SBATCH_PARTITION",
        "PREFECT_API_KEY",
        "DISPATCH_X",
    } & set(inherited)


async def test_a_requeue_of_what_has_run_again_already_or_is_forgotten_changes_nothing(fake):
    scheduler = fake.scheduler()
    with pytest.raises(SubmitRefused, match="forgotten"):
        await scheduler.requeue(job(), 1)
    fake.says("squeue", queued(7, TOKEN, "RUNNING", restart=1))
    fake.says("sacct", accounted(7, TOKEN, "FAILED", "7:0"))
    await scheduler.requeue(job(), 1)
    fake.says("squeue", queued(7, TOKEN, "RUNNING"))
    with pytest.raises(SchedulerError, match="has to end"):
        await scheduler.requeue(job(), 1)
    assert fake.calls("scontrol") == []
