"""A file of secret variables in the user's home behind a command prefix: written by standard input, read by the job.

No command line, log, record or environment of a command names them; only who may read the user's own files sees them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta

from prefect_dispatch.errors import SubmitRefused

FOLDER = "$HOME/.prefect-dispatch/secrets"
"""The home folder of a cluster's user is there on its login node and on its compute nodes."""
_LAST = "# all of it"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WRITE = f"""umask 077 && mkdir -p "{FOLDER}" && chmod 700 "{FOLDER}" && cd "{FOLDER}" || exit 74
find . -type f -mtime +"$2" -exec rm -f {{}} +
cat >"$1.new" && [ "$(tail -n 1 "$1.new")" = "{_LAST}" ] && mv -f "$1.new" "$1" && exit 0
rm -f "$1.new"; echo "the secrets came only in part" >&2; exit 74"""
_DELETE = f'rm -f "{FOLDER}/$1"'


def text_of(secrets: Mapping[str, str]) -> bytes:
    """The file: lines that a shell reads.

    Raises:
        SubmitRefused: a name is none that a shell can set, or a value holds what no variable can.
    """
    for name, value in secrets.items():
        if not _VARIABLE.match(name):
            raise SubmitRefused(f"the secret {name!r} cannot be handed over: a shell sets no such variable; rename it")
        if "\0" in value:
            raise SubmitRefused(f"the secret {name} holds a NUL, which no variable can; write another one")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(secrets.items())]
    return "\n".join([*lines, _LAST, ""]).encode("utf-8", "surrogateescape")


def write_command(token: str, keep: timedelta) -> Sequence[str]:
    """The command that takes the file from standard input, and deletes what is left of others' after some time."""
    return ("sh", "-c", _WRITE, "sh", token, str(max(1, keep.days)))


def delete_command(token: str) -> Sequence[str]:
    """The command that deletes it. Nothing is said where it is not there."""
    return ("sh", "-c", _DELETE, "sh", token)


def read_lines(token: str, once: bool) -> list[str]:
    """The lines of a batch script that read it.

    Args:
        token: whose it is.
        once: whether the job can never run again, so that the file is deleted as soon as it was read.
    """
    place = f'"{FOLDER}/{token}"'
    missing = f'echo "dispatch: the file of secrets is not in {FOLDER} on $(uname -n)" >&2; exit 74'
    lines = [f"[ -r {place} ] || {{ {missing}; }}", f". {place}"]
    return [*lines, f"rm -f -- {place}"] if once else lines
