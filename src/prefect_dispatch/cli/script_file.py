"""A job that names a batch script: what stands in the script, beneath what stands in the job."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect_dispatch.errors import SpecError
from prefect_dispatch.schedulers.slurm.adopted_script import MOST_BYTES, ScriptFault, adopt, merge


def with_script(document: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Put the script's fields in the place of its name.

    Args:
        document: a job's, with ``script``.
        folder: that of the job's file, which the script's path is relative to.

    Returns:
        The job without ``script``; and what of the script gives way, for people.

    Raises:
        SpecError: the script cannot be read, or not be taken as it is.
    """
    script = document["script"]
    if not isinstance(script, str) or not script:
        raise SpecError(f"script {script!r} is no path; give that of a batch script")
    if "command" in document:
        raise SpecError(f"script {script!r} and command say both what runs; take one out")
    try:
        adopted = adopt(_read(folder / script), os.path.basename(script))
    except ScriptFault as fault:
        raise SpecError(f"script {script!r}: {fault}") from None
    own = {name: value for name, value in document.items() if name != "script"}
    merged, notes = merge(own, adopted)
    return merged, [f"script {script}: {note}" for note in (*adopted.notes, *notes)]


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SpecError(f"script {str(path)!r} is not a regular file; give the path of a batch script")
            return file.read(MOST_BYTES + 1).decode("utf-8")
    except IsADirectoryError:
        raise SpecError(f"script {str(path)!r} is a folder; give the path of a batch script") from None
    except OSError as error:
        raise SpecError(f"script {str(path)!r} cannot be read: {error.strerror}; give its path") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"script {str(path)!r} is not text in UTF-8: {error.reason}") from None
