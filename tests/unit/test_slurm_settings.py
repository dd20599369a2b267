"""Slurm's settings, as specs and records carry them, and the script that comes of a request."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.submission import RestartSource, Submission
from prefect_dispatch.model.spec import JobSpec, Resources
from prefect_dispatch.schedulers.command_signal import CommandSignal
from prefect_dispatch.schedulers.registry import (
    job_refusal,
    read_settings,
    runs_here,
    same_queue,
    scheduler_of,
    signal_of,
)
from prefect_dispatch.schedulers.slurm.script import batch_script, describe_option_refusal, sbatch_options
from prefect_dispatch.testing.plain_request import plain_request

HERE = Path("/here")
TELLS = "import json, os, sys; print(json.dumps([open(sys.argv[3]).read(), sys.argv[1:], dict(os.environ)]))"


def test_settings_are_completed_and_their_places_made_absolute():
    read = read_settings({"type": "slurm", "partition": "low", "log_folder": "logs", "poll_interval": "5s"}, HERE)
    assert (read["log_folder"], read["poll_interval"], read["partition"]) == ("/here/logs", "5s", "low")
    assert read_settings(read, Path("/elsewhere")) == read
    assert scheduler_of(read).capabilities.poll_interval == timedelta(seconds=5)
    assert scheduler_of(read).capabilities.requeue and not runs_here(read)


def test_places_behind_a_prefix_are_the_sites_own():
    read = read_settings({"type": "slurm", "command_prefix": ["ssh", "login"], "log_folder": "logs"}, HERE)
    assert read["log_folder"] == "logs"
    assert read_settings({"type": "slurm", "command_prefix": ["ssh", "login"]}, HERE)["log_folder"] is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"partitoin": "x"}, "unknown field 'scheduler.partitoin'; a slurm scheduler has type, command_prefix"),
        ({"warning_signal": "KILL"}, "scheduler.warning_signal: 'KILL' is refused"),
        ({"poll_interval": "0s"}, "scheduler.poll_interval"),
        ({"options": {"array": "1-9"}}, "options array: one job is one object"),
        ({"cessation_command": ["gone", "{host}"]}, "asks for what is not there"),
        ({"command_prefix": [""]}, "command_prefix begins with an empty word"),
    ],
)
def test_wrong_settings_are_refused_in_one_line_that_names_them(wrong, message):
    with pytest.raises(SpecError) as error:
        read_settings({"type": "slurm", **wrong}, HERE)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_cessation_command_is_the_schedulers_signal():
    assert signal_of({"type": "slurm"}) is None
    signal = signal_of({"type": "slurm", "cessation_command": ["gone", "{object}", "{restart}", "{node}"]})
    assert isinstance(signal, CommandSignal) and signal.each == "node"


def test_two_settings_of_one_cluster_know_the_same_jobs():
    here = {"type": "slurm", "partition": "low"}
    assert same_queue(here, {"type": "slurm", "partition": "high", "poll_interval": "5s"})
    assert not same_queue(here, {"type": "slurm", "command_prefix": ["ssh", "login"]})
    assert not same_queue(here, {"type": "local"})
    assert same_queue({"type": "local", "slots": 1}, {"type": "local", "slots": 2})


def test_a_job_is_refused_for_an_option_before_it_is_opened():
    spec = JobSpec(lineage="x", command=("true",), resources=Resources(options={"time": "4:00"}))
    assert "resources.time_limit" in str(job_refusal({"type": "slurm"}, spec, HERE))


def test_an_option_whose_name_another_one_begins_with_is_no_abbreviation():
    options = {
        "gpus": "2",
        "ntasks": "4",
        "mem-per-cpu": "1G",
        "nodelist": "n1",
        "wait-all-nodes": "1",
        "time-min": "5",
    }
    assert describe_option_refusal(Resources(options=options)) is None


def test_the_options_say_what_the_resources_say():
    request = replace(
        plain_request(HERE, "true"),
        resources=Resources(
            nodes=2,
            tasks_per_node=4,
            cpus=3,
            gpus=1,
            memory=1024 * 1024 + 1,
            time_limit=timedelta(hours=30, seconds=1),
            options={"partition": "high", "exclusive": "true", "constraint": "a&b"},
        ),
        restarts_allowed=True,
    )
    words = sbatch_options(request, {"partition": "low", "account": "me"}, "/logs/50%", ("USR1", 90))
    for word in (
        f"--job-name=suite.g0n1.{request.token}",
        f"--comment=prefect-dispatch:{request.token}",
        "--requeue",
        "--output=/logs/50%%",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--cpus-per-task=3",
        "--gpus-per-node=1",
        "--mem=2M",
        "--time=1-06:00:01",
        "--signal=B:USR1@90",
        "--partition=high",
        "--account=me",
        "--exclusive",
        "--constraint=a&b",
    ):
        assert word in words
    assert "--partition=low" not in words and "--no-requeue" not in words


def test_the_script_hands_the_submission_over_and_leaves_nothing(tmp_path):
    # given a script whose helper tells what it is given
    words = ("a b", "'", '"', "$HOME", "#SBATCH --x", "-")
    request = plain_request(tmp_path, *words, environment={"ODD NAME": "line\nbreak"})
    script = batch_script(request, (sys.executable, "-I", "-c", TELLS), None)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # when it runs
    done = subprocess.run(
        ["sh", "-s"],
        input=script,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "SLURM_RESTART_COUNT": "3"},
    )
    # then
    assert done.returncode == 0 and done.stderr == b""
    document, arguments, environment = json.loads(done.stdout)
    told = Submission.decode(document.encode(), "the document")
    assert told.token == request.token and told.restart_source is RestartSource.SLURM
    assert arguments == ["run", "--submission", "/dev/fd/9", "--", *words]
    assert environment["ODD NAME"] == "line\nbreak" and environment["DISPATCH_RESTART"] == "3"
    assert list(temporary.iterdir()) == []
    assert not re.search(rb"^#SBATCH", script, re.MULTILINE)


def test_a_working_folder_that_is_not_there_starts_nothing(tmp_path):
    script = batch_script(plain_request(tmp_path / "gone", "true"), ("echo",), None)
    assert subprocess.run(["sh", "-s"], input=script, capture_output=True).returncode == 2
