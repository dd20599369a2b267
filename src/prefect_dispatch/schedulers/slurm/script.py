"""What ``sbatch`` is handed for a submission: its options, and the batch script. Pure."""

from __future__ import annotations

import base64
import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.submission import RestartSource
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.slurm.tables import comment_of
from prefect_dispatch.schedulers.slurm.time_limits import read_time_limit, write_time_limit

OURS = {
    "job-name": "it carries the submission's token",
    "comment": "it carries the submission's token",
    "parsable": "it is set already",
    "requeue": "the recovery rules decide; set recovery",
    "no-requeue": "the recovery rules decide; set recovery",
    "array": "one job is one object",
    "wrap": "write command",
    "export": "the job inherits the environment; write environment",
    "export-file": "write environment",
    "get-user-env": "write environment",
    "output": "write log",
    "error": "write log",
    "open-mode": "every run of a job appends to its log",
    "chdir": "write workdir",
    "signal": "write warning_signal and warning_lead in the scheduler's settings",
    "wait": "nobody waits for sbatch",
    "test-only": "nothing would run",
    "hold": "a person would have to release it",
    "clusters": "name one cluster's commands by command_prefix",
    "nodes": "write resources.nodes",
    "ntasks-per-node": "write resources.tasks_per_node",
    "tasks-per-node": "write resources.tasks_per_node",
    "cpus-per-task": "write resources.cpus",
    "mem": "write resources.memory",
    "gpus-per-node": "write resources.gpus",
}
"""The options that are not for ``resources.options``, and what to do instead."""
_WHOLE = frozenset({"gpus", "ntasks"})
"""Options of their own whose names another one of ours begins with."""
WITH_SETUP = 'set -e\n{setup}\nexec "$@"'
_MEBIBYTE = 1024 * 1024
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


def describe_option_refusal(resources: Resources) -> str | None:
    """Say which of the options cannot be given; None when all can."""
    for name, value in resources.options.items():
        if not _NAME.match(name):
            return f"resources.options {name!r} is no long option of sbatch; write one such as partition"
        if name == "time":
            return _describe_time(value)
        # getopt_long(3) takes the beginning of a name for the whole.
        meant = name if name in OURS else next((each for each in (*OURS, "time") if each.startswith(name)), None)
        if meant is not None and name not in _WHOLE:
            short = "" if meant == name else f"it may be read as {meant}: "
            return f"resources.options {name}: {short}{OURS.get(meant, 'write the whole name')}"
        if "\n" in value:
            return f"resources.options {name} holds a line break; take it out"
    return None


def _describe_time(value: str) -> str:
    try:
        limit = read_time_limit(value)
    except UsageError as error:
        return f"resources.options time: {error}"
    instead = f"; {value!r} is {describe_duration(limit)}" if limit is not None else ""
    return f"resources.options time: write resources.time_limit{instead}"


def sbatch_options(
    request: SubmissionRequest, options: Mapping[str, str], log: str, warning: tuple[str, int] | None
) -> list[str]:
    """The options of ``sbatch``, word by word.

    Args:
        request: what is submitted.
        options: the scheduler's own ones, such as ``partition``; those of the request win.
        log: the file that its output is appended to, as its node sees it.
        warning: the signal before the time limit, and how many seconds before it.
    """
    resources = request.resources
    words = [
        "--parsable",
        f"--job-name={request.name}",
        f"--comment={comment_of(request.token)}",
        "--requeue" if request.restarts_allowed else "--no-requeue",
        "--open-mode=append",
        "--export=ALL",
        f"--chdir={request.workdir}",
        f"--output={log.replace('%', '%%')}",
        f"--nodes={resources.nodes}",
        f"--ntasks-per-node={resources.tasks_per_node}",
    ]
    if resources.cpus is not None:
        words.append(f"--cpus-per-task={resources.cpus}")
    if resources.gpus:
        words.append(f"--gpus-per-node={resources.gpus}")
    if resources.memory is not None:
        words.append(f"--mem={max(1, -(-resources.memory // _MEBIBYTE))}M")
    if resources.time_limit is not None:
        words.append(f"--time={write_time_limit(resources.time_limit)}")
    if warning is not None:
        # B: only the batch script gets it, which is the wrapper.
        words.append(f"--signal=B:{warning[0]}@{warning[1]}")
    for name, value in {**options, **resources.options}.items():
        words.append(f"--{name}={value}" if value and value != "true" else f"--{name}")
    return words


def batch_script(
    request: SubmissionRequest, helper: Sequence[str], first_on_path: str | None, reading: Sequence[str] = ()
) -> bytes:
    """The batch script. It becomes the wrapper, so that what Slurm sends to the batch script reaches the wrapper.

    The submission is a file of the node for no longer than it takes to open it, and has no name after that.

    Args:
        request: what is submitted.
        helper: the command that is ``dispatch-job`` on the nodes.
        first_on_path: a folder to put before the others on ``PATH``.
        reading: lines that read a file of secrets.
    """
    document = dataclasses.replace(request.document, restart_source=RestartSource.SLURM)
    text = base64.b64encode(document.encode()).decode("ascii")
    lines = "\n".join(text[start : start + 76] for start in range(0, len(text), 76))
    command = request.command
    if request.setup:
        command = ("bash", "-c", WITH_SETUP.format(setup="\n".join(request.setup)), "bash", *command)
    words = ["exec", "env", "--", *(f"{name}={value}" for name, value in request.environment.items())]
    words += [*helper, "run", "--submission", "/dev/fd/9", "--", *command]
    own_path = first_on_path is not None and "PATH" not in request.environment
    path = [f'PATH={shlex.quote(str(first_on_path))}:"${{PATH:-/usr/local/bin:/usr/bin:/bin}}"; export PATH']
    script = [
        "#!/bin/sh",
        f"# {request.name}, by prefect-dispatch",
        f"cd -- {shlex.quote(str(request.workdir))} || exit 2",
        *(path if own_path else []),
        *reading,
        'DISPATCH_RESTART="${SLURM_RESTART_COUNT:-0}"; export DISPATCH_RESTART',
        "umask_before=$(umask); umask 077",
        'submission=$(mktemp "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/dispatch.XXXXXXXXXX") || exit 74',
        "base64 -d >\"$submission\" <<'END' || exit 74",
        lines,
        "END",
        'exec 9<"$submission" && rm -f -- "$submission" || exit 74',
        'umask "$umask_before"; unset submission umask_before',
        " ".join([words[0], *(shlex.quote(word) for word in words[1:])]),
        "",
    ]
    return "\n".join(script).encode("utf-8", "surrogateescape")


def log_name(request: SubmissionRequest) -> str:
    """The name of a log where the spec gives none."""
    return f"{request.name}.log"


def default_log(request: SubmissionRequest, folder: Path | None) -> str:
    """Where the output goes: the spec's own log, else a file in the folder of logs, else one in the working folder."""
    if request.log is not None:
        return str(request.log)
    return str((folder or request.workdir) / log_name(request))
