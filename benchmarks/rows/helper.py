"""The helper as jobs start it, and the submissions that it is given."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission


def installed() -> tuple[str, ...]:
    """The command of an installed helper."""
    beside = Path(sys.executable).parent / "dispatch-job"
    found = str(beside) if beside.exists() else shutil.which("dispatch-job")
    return (found,) if found else (sys.executable, "-m", "prefect_dispatch.job")


def submission(folder: Path, number: int, saves: Saves | None = None) -> Path:
    """Write the document of one submission of a lineage whose root is in this folder; returns its path."""
    document = Submission(
        lineage="speed",
        record="",
        generation=0,
        submission=number,
        token=new_token(),
        root=str(folder / "root"),
        choice=ResumeChoice(),
        saves=saves or Saves(),
        identity={},
        notice=Notice("TERM", timedelta(seconds=5)),
        restart_source=RestartSource.ENVIRONMENT,
    )
    path = folder / f"submission-{number}.json"
    path.write_bytes(document.encode())
    return path


def environment() -> dict[str, str]:
    """What a job's wrapper finds: nothing of another execution, and compiled files as an installation has them."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**inherited, "DISPATCH_RESTART": "0"}
