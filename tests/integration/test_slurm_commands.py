"""How Slurm's commands are run: their environment, what is before them, what they complain about, and when they end."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError, SubmitRefused
from prefect_dispatch.format.names import new_token
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.testing.plain_request import plain_request
from support.fake_slurm import queued
from support.waiting import until

TOKEN = new_token()
JOB = ObjectRef(scheduler="slurm", id="7", token=TOKEN)
BANNER = "*** unauthorized access is not allowed; every retry is logged; X11 forwarding is disabled ***\n" * 20


def shout(complaint: str, code: int) -> str:
    return f"cat >&2 <<'END'\n{BANNER}{complaint}\nEND\nexit {code}\n"


@pytest.mark.parametrize("had", [{"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "relative"}, {}])
async def test_a_job_has_the_language_and_the_times_that_its_submitter_had(fake, tmp_path, monkeypatch, had):
    # given
    for name in ("LC_ALL", "SLURM_TIME_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in had.items():
        monkeypatch.setenv(name, value)
    for name in ("squeue", "sbatch"):
        fake.does(name, f"env >{fake.folder}/{name}.env\n")
    fake.says("sbatch", "12")
    # when
    scheduler = fake.scheduler()
    await scheduler.submit(plain_request(tmp_path, "true"))
    await scheduler.observe([JOB])
    # then what the job inherits is the submitter's, and what is read by us is not
    told = {}
    for name in ("squeue", "sbatch"):
        lines = (fake.folder / f"{name}.env").read_text().splitlines()
        inherited = dict(line.partition("=")[::2] for line in lines)
        told[name] = {name: inherited[name] for name in ("LC_ALL", "SLURM_TIME_FORMAT") if name in inherited}
    assert told == {"sbatch": had, "squeue": {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}}


@pytest.mark.parametrize(
    "complaint", ["Invalid job id specified for job 7", "Job has already finished for job 7", "scancel: x"]
)
async def test_a_banner_hides_nothing_that_is_decided_by(fake, complaint):
    # given a job that is gone when it is to be stopped, and a site that greets everyone at length
    fake.says("squeue", queued(7, TOKEN))
    fake.does("scontrol", shout(complaint, 1))
    # when / then
    if complaint.startswith("scancel"):
        with pytest.raises(SchedulerError, match="scancel: x") as error:
            await fake.scheduler().stop(JOB, None)
        assert len(str(error.value)) < 400
    else:
        await fake.scheduler().stop(JOB, None)


async def test_a_requeue_that_slurm_does_not_allow_is_refused_and_a_banner_is_no_refusal(fake):
    fake.says("squeue", queued(7, TOKEN, "FAILED"))
    fake.does("scontrol", shout("Requested operation is presently disabled for job 7", 1))
    with pytest.raises(SubmitRefused, match="presently disabled"):
        await fake.scheduler().requeue(JOB, 1)
    fake.does("scontrol", shout("Connection closed.", 255))
    with pytest.raises(SchedulerError) as error:
        await fake.scheduler().requeue(JOB, 1)
    assert not isinstance(error.value, SubmitRefused)


async def test_a_refusal_behind_a_banner_is_one_and_a_connection_that_is_lost_is_none(fake, tmp_path):
    # given
    request = plain_request(tmp_path, "true")
    fake.does("sbatch", shout("sbatch: error: Batch job submission failed: Invalid qos specification", 1))
    # when / then
    with pytest.raises(SubmitRefused, match="Invalid qos"):
        await fake.scheduler(prefix=("env",)).submit(request)
    fake.does("sbatch", shout("Connection to login closed by remote host.", 255))
    with pytest.raises(SchedulerError, match="looked for by its token") as error:
        await fake.scheduler(prefix=("env",)).submit(request)
    assert not isinstance(error.value, SubmitRefused)


async def test_a_machine_without_sbatch_refuses_and_says_so(fake, tmp_path, monkeypatch):
    # given a PATH without Slurm's commands
    (fake.folder / "sbatch").unlink()
    (fake.folder / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(fake.folder))
    # when / then
    with pytest.raises(SubmitRefused, match="sbatch is not on PATH where it was to run"):
        await fake.scheduler().submit(plain_request(tmp_path, "true"))


async def test_a_prefix_that_is_no_command_is_named(fake, tmp_path):
    with pytest.raises(SchedulerError, match=r"no-such-ssh does not start.*look at command_prefix"):
        await fake.scheduler(prefix=("no-such-ssh", "login")).submit(plain_request(tmp_path, "true"))


@pytest.mark.parametrize("before", [(), ("env",), ("timeout", "60"), ("nice", "-n", "1", "timeout", "60")])
async def test_behind_ssh_each_word_reaches_the_command_as_it_is(fake, tmp_path, before):
    # given an ssh that does what ssh does: one line of text for a shell on the other side
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    workdir = tmp_path / "a 'b' $(touch hit) \"c\"; 100% & *"
    workdir.mkdir()
    fake.does("sbatch", f'for word in "$@"; do printf "%s\\n" "$word"; done >{fake.folder}/words; cat >/dev/null\n')
    fake.says("sbatch", "Welcome!", "12;cluster")
    # when
    request = plain_request(workdir, "true", log=workdir / "log")
    object = await fake.scheduler(prefix=(*before, str(ssh), "login")).submit(request)
    # then
    assert object.id == "12"
    words = (fake.folder / "words").read_text().splitlines()
    assert f"--chdir={workdir}" in words
    assert any(word.startswith("--output=") and "100%% & *" in word for word in words)
    assert not (tmp_path / "hit").exists() and "hit" not in os.listdir()


@pytest.mark.parametrize("call", ["requeue", "set_restarts", "stop", "cancel"])
async def test_a_change_that_nobody_waits_for_any_more_is_not_made_later(fake, call):
    # given a command that has not done anything yet
    name = "scancel" if call == "cancel" else "scontrol"
    fake.says("squeue", queued(7, TOKEN, "FAILED" if call == "requeue" else "RUNNING"))
    there = f"echo $$ >{fake.folder}/new; mv {fake.folder}/new {fake.folder}/pid"
    fake.does(name, f"{there}; sleep 60; touch {fake.folder}/done\n")
    scheduler = fake.scheduler(within=timedelta(minutes=5))
    calls = {
        "requeue": lambda: scheduler.requeue(JOB, 1),
        "set_restarts": lambda: scheduler.set_restarts(JOB, True),
        "stop": lambda: scheduler.stop(JOB, None),
        "cancel": lambda: scheduler.stop(JOB, None),
    }
    # when whoever wanted it is cancelled
    task = asyncio.create_task(calls[call]())
    await asyncio.to_thread(until, (fake.folder / "pid").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # then it is killed
    pid = int((fake.folder / "pid").read_text())
    await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), "it is gone", 20.0)
    assert not (fake.folder / "done").exists()


async def test_a_submission_may_take_as_long_as_its_command(fake):
    assert fake.scheduler(within=timedelta(minutes=5)).capabilities.submit_bound == timedelta(minutes=5)
    assert fake.scheduler(within=timedelta(seconds=5)).capabilities.submit_bound == timedelta(minutes=1)


async def test_a_log_folder_that_is_a_file_is_refused_before_anything_is_submitted(fake, tmp_path):
    (fake.folder / "logs").write_text("")
    with pytest.raises(SubmitRefused, match="log_folder"):
        await fake.scheduler().submit(plain_request(tmp_path, "true"))
    assert fake.calls("sbatch") == []
