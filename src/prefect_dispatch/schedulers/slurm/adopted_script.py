"""A batch script of Slurm's as a job: its ``#SBATCH`` lines become fields of a spec, and its text the program. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefect_dispatch.errors import UsageError
from prefect_dispatch.schedulers.slurm.time_limits import read_time_limit

SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
MOST_BYTES = 100_000
"""Linux takes no longer argument than 128 KiB (execve(2)), and the text of a script is one."""
_SHORT = {
    "-A": "account", "-a": "array", "-b": "begin", "-C": "constraint", "-c": "cpus-per-task", "-D": "chdir",
    "-d": "dependency", "-e": "error", "-G": "gpus", "-H": "hold", "-J": "job-name", "-k": "no-kill", "-L": "licenses",
    "-M": "clusters", "-m": "distribution", "-N": "nodes", "-n": "ntasks", "-O": "overcommit", "-o": "output",
    "-p": "partition", "-Q": "quiet", "-q": "qos", "-S": "core-spec", "-s": "oversubscribe", "-t": "time",
    "-v": "verbose", "-W": "wait", "-w": "nodelist", "-x": "exclude",
}  # fmt: skip
_FLAGS = frozenset(
    {
        "contiguous", "exclusive", "get-user-env", "hold", "no-kill", "no-requeue", "overcommit", "oversubscribe",
        "parsable", "quiet", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait",
    }
)  # fmt: skip
"""Options that have no value, or one only behind ``=``."""
_GIVE_WAY = {
    "job-name": "the name carries the submission's token",
    "comment": "the comment carries the submission's token",
    "requeue": "the recovery rules decide",
    "no-requeue": "the recovery rules decide",
    "open-mode": "every run of a job appends to its log",
    "error": "output and errors go to one log",
    "parsable": "it is set already",
    "quiet": "sbatch has to say the job's number",
    "verbose": "sbatch has to say the job's number alone",
}
"""What ours takes the place of, and why."""
_CONTRADICT = {
    "array": "one job is one object; write a job for each task",
    "wait": "nobody waits for sbatch",
    "hold": "a person would have to release it",
    "test-only": "nothing would run",
    "wrap": "write command",
    "clusters": "name one cluster's commands by command_prefix in the scheduler's settings",
    "get-user-env": "write environment",
    "export-file": "write environment",
    "signal": "write warning_signal and warning_lead in the scheduler's settings, and checkpoint_cancelation",
}
"""What cannot be together with ours, and what to do."""
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?\Z", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9]\d*\Z")


class ScriptFault(ValueError):
    """A batch script cannot be taken as a job; the text says why and what to do."""


@dataclass(frozen=True)
class Adopted:
    """What a batch script comes to.

    Attributes:
        fields: fields of a spec: ``command``, and what its options say.
        notes: which of its options give way to ours, and why.
    """

    fields: Mapping[str, Any]
    notes: tuple[str, ...]


def adopt(text: str, name: str) -> Adopted:
    """Read a batch script.

    Args:
        text: the script.
        name: what it calls itself, ``$0``.

    Raises:
        ScriptFault: it cannot be taken as it is.
    """
    if len(text.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise ScriptFault(f"it has more than {MOST_BYTES} bytes; call a second script from it")
    first, _, rest = text.partition("\n")
    interpreter = shlex.split(first[2:]) if first.startswith("#!") else []
    shell = interpreter[-1] if interpreter[:1] == ["/usr/bin/env"] else (interpreter or [""])[0]
    if shell.rpartition("/")[2] not in SHELLS:
        raise ScriptFault(f"it begins with {first[:60]!r} and not with #! and a shell; write command instead")
    fields: dict[str, Any] = {"command": [*interpreter, "-c", text, name]}
    resources: dict[str, Any] = {}
    options: dict[str, str] = {}
    notes: list[str] = []
    tasks: int | None = None
    for option, value in _options(rest):
        if option in _CONTRADICT:
            raise ScriptFault(f"its option {option} contradicts: {_CONTRADICT[option]}")
        if option in _GIVE_WAY:
            notes.append(f"{option} gives way: {_GIVE_WAY[option]}")
        elif option == "export" and value.upper() == "ALL":
            continue
        elif option == "export":
            raise ScriptFault(f"its option export={value} contradicts: the job inherits the environment; take it out")
        elif option == "output" and "%" in value:
            notes.append(f"output {value} gives way: all runs of a job go on in one log; write log for another place")
        elif option == "output":
            fields["log"] = value
        elif option == "chdir":
            fields["workdir"] = value
        elif option == "time":
            limit = _time(value)
            if limit is not None:
                resources["time_limit"] = limit
        elif option == "nodes":
            resources["nodes"] = _number(option, value)
        elif option == "ntasks-per-node":
            resources["tasks_per_node"] = _number(option, value)
        elif option == "ntasks":
            tasks = _number(option, value)
        elif option == "cpus-per-task":
            resources["cpus"] = _number(option, value)
        elif option == "mem":
            resources["memory"] = _memory(value)
        elif option == "gpus-per-node" and _NUMBER.match(value):
            resources["gpus"] = int(value)
        elif option == "gpus-per-node":
            options["gres"] = f"gpu:{value}"
        else:
            options[option] = value
    if tasks is not None:
        _spread(tasks, resources)
    if options:
        resources["options"] = options
    if resources:
        fields["resources"] = resources
    return Adopted(fields, tuple(notes))


def merge(document: Mapping[str, Any], adopted: Adopted) -> tuple[dict[str, Any], list[str]]:
    """Put a script's fields beneath those of the spec that names it, whose own win.

    Args:
        document: the spec, without ``script``.
        adopted: what the script comes to.

    Returns:
        The spec, and what the script has that gives way to it.
    """
    notes = []
    merged = dict(adopted.fields)
    for name, value in document.items():
        if name == "resources" and isinstance(value, Mapping):
            beneath = dict(merged.get("resources", {}))
            for field, own in value.items():
                if field == "options" and isinstance(own, Mapping):
                    below = dict(beneath.get("options", {}))
                    notes += [
                        f"{each} {below[each]} gives way to the spec's {own[each]}" for each in own if each in below
                    ]
                    beneath["options"] = {**below, **own}
                    continue
                if field in beneath:
                    notes.append(f"{field} {beneath[field]} gives way to the spec's {own}")
                beneath[field] = own
            merged["resources"] = beneath
        else:
            if name in merged:
                notes.append(f"{name} gives way to the spec's {value}")
            merged[name] = value
    return merged, notes


def _options(text: str) -> list[tuple[str, str]]:
    """The options of the ``#SBATCH`` lines, by their long names; sbatch(1) reads none behind the first command."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if not line.startswith("#SBATCH") or line[7:8] not in (" ", "\t"):
            continue
        try:
            words = shlex.split(line[7:], comments=True)
        except ValueError as error:
            raise ScriptFault(f"its line {line!r} cannot be read: {error}") from None
        while words:
            name, value, words = _option(words, line)
            found.append((name, value))
    return found


def _option(words: list[str], line: str) -> tuple[str, str, list[str]]:
    """The first option of a line, and the words behind it."""
    word, rest = words[0], words[1:]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
    elif word[:2] in _SHORT:
        name, value = _SHORT[word[:2]], word[2:].removeprefix("=")
        equals = value
    else:
        raise ScriptFault(f"its line {line!r} has {word!r}, which is no option of sbatch's")
    if equals:
        return name, value, rest
    if name in _FLAGS:
        return name, "true", rest
    if not rest:
        raise ScriptFault(f"its line {line!r} has no value for {word}")
    return name, rest[0], rest[1:]


def _number(option: str, value: str) -> int:
    if not _NUMBER.match(value):
        raise ScriptFault(f"its option {option} is {value!r}; write one number")
    return int(value)


def _time(value: str) -> int | None:
    """Seconds; None for no limit."""
    try:
        limit = read_time_limit(value)
    except UsageError as error:
        raise ScriptFault(f"its option time: {error}") from None
    return None if limit is None else round(limit.total_seconds())


def _memory(value: str) -> int:
    """Bytes; Slurm counts in MiB where no unit is given."""
    found = _MEMORY.match(value)
    if not found or not int(found.group(1)):
        raise ScriptFault(f"its option mem is {value!r}; write a size such as 16G, and exclusive for all of a node")
    power = {"K": 1, "": 2, "M": 2, "G": 3, "T": 4}[found.group(2).upper()]
    return int(found.group(1)) * int(1024**power)


def _spread(tasks: int, resources: dict[str, Any]) -> None:
    """Put a number of tasks in terms of nodes, where that is the same."""
    nodes = resources.get("nodes", 1 if tasks == 1 else None)
    if nodes is None or tasks % nodes:
        raise ScriptFault(f"its option ntasks is {tasks}; write nodes and ntasks-per-node instead, which say where")
    if resources.setdefault("tasks_per_node", tasks // nodes) * nodes != tasks:
        raise ScriptFault(f"its options ntasks {tasks} and ntasks-per-node contradict one another; take one out")
