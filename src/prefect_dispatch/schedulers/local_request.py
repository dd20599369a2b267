"""What the local scheduler makes of a submission request: a command line and an environment, or a refusal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.format.contract import PATIENCE, PREFIX, RESTART
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local_records import ObjectFolder, Record

WITH_SETUP = 'set -e\n{setup}\nexec "$@"'
"""The shell script that runs the setup lines and then becomes the command."""


def describe_refusal(request: SubmissionRequest, inherited: Mapping[str, str] = os.environ) -> str | None:
    """Say why the local scheduler cannot take a request; None when it can. Changes nothing.

    Args:
        request: what would be submitted.
        inherited: the environment that its job would inherit.
    """
    refusal = describe_resource_refusal(request.resources)
    if refusal is not None:
        return refusal
    path = job_path(inherited, request.environment)
    return describe_program_refusal(request.command, request.setup, request.workdir, path)


def describe_resource_refusal(resources: Resources) -> str | None:
    """Say what of the resources the local scheduler does not have; None when it has all. Pure."""
    if resources.nodes > 1:
        return f"resources.nodes {resources.nodes}: the local scheduler has one node; use 1"
    if resources.tasks_per_node > 1:
        tasks = resources.tasks_per_node
        return f"resources.tasks_per_node {tasks}: the local scheduler starts one task; use 1"
    if resources.gpus > 0:
        return f"resources.gpus {resources.gpus}: the local scheduler does not allot GPUs; leave it out"
    if resources.memory is not None:
        return f"resources.memory {resources.memory}: the local scheduler does not limit memory; leave it out"
    if resources.options:
        names = ", ".join(sorted(resources.options))
        return f"resources.options {names}: the local scheduler has no options; leave them out"
    return None


def job_environment(
    own: Mapping[str, str], inherited: Mapping[str, str], secrets: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The wrapper's environment.

    What is inherited less ``DISPATCH_*`` but for the patience with S3, with the running interpreter's folder first on
    PATH, so that ``python`` is the one of its virtual environment; then the spec's own variables and the secrets; then
    the restart.
    """
    environment = {name: text for name, text in inherited.items() if name in PATIENCE or not name.startswith(PREFIX)}
    environment.update(own)
    environment.update(secrets or {})
    environment["PATH"] = job_path(inherited, own)
    environment[RESTART] = "0"
    return environment


def job_path(inherited: Mapping[str, str], own: Mapping[str, str]) -> str:
    """The PATH of a job: its spec's own, else the inherited one behind the running interpreter's folder."""
    if "PATH" in own:
        return own["PATH"]
    folders = [str(Path(sys.executable).parent), *inherited.get("PATH", os.defpath).split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(folders))


def job_arguments(request: SubmissionRequest, wrapper: tuple[str, ...], submission: Path) -> tuple[str, ...]:
    """The wrapper's command line."""
    command = request.command
    if request.setup:
        command = ("sh", "-c", WITH_SETUP.format(setup="\n".join(request.setup)), "sh", *command)
    return (*wrapper, "run", "--submission", str(submission), "--", *command)


def describe_object(
    request: SubmissionRequest, wrapper: tuple[str, ...], linger: timedelta, placed: ObjectFolder
) -> Record:
    """The ``object.json`` of a request: all that it takes to run it, but the environment."""
    limit = request.resources.time_limit
    return {
        "name": request.name,
        "arguments": list(job_arguments(request, wrapper, placed.submission)),
        "workdir": str(request.workdir),
        "log": str(request.log or placed.path / "log"),
        "time_limit_seconds": None if limit is None else limit.total_seconds(),
        "linger_seconds": linger.total_seconds(),
    }


def describe_program_refusal(command: Sequence[str], setup: Sequence[str], workdir: Path, path: str) -> str | None:
    """Say why a program cannot be started; None when it can. Changes nothing."""
    if not workdir.is_dir():
        return f"workdir {str(workdir)!r} is not a folder; make it, or name another"
    if setup:
        # The setup may be what puts the command on PATH.
        return None
    program = command[0]
    if "/" in program:
        found = shutil.which(workdir / program) is not None
        where = f"in {str(workdir)!r}" if not program.startswith("/") else "there"
    else:
        found, where = shutil.which(program, path=path) is not None, f"on the PATH {path}"
    return None if found else f"command {program!r} is no program {where}; correct it, or install it"
