"""The helper by itself around the training, without a supervisor: its command line and its environment."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from support.crash.child import LINEAGE, TRAINER
from support.environment import environment_without


def helper_command(place: Path, number: int) -> list[str]:
    """Write the document of a submission beside a folder; returns the command line of the helper for it.

    Args:
        place: the folder, on a disk of its own; the root is below it.
        number: which submission.
    """
    document = place.with_name(f"{place.name}-{number}.json")
    document.write_bytes(
        Submission(
            lineage=LINEAGE,
            record="",
            generation=0,
            submission=number,
            token=new_token(),
            root=str(place / "runs"),
            choice=ResumeChoice(),
            saves=Saves.decode({"kind": "marker"}),
            identity={},
            notice=Notice("TERM", timedelta(seconds=5)),
            restart_source=RestartSource.ENVIRONMENT,
            watch_interval=timedelta(seconds=0.03),
        ).encode()
    )
    program = [sys.executable, "-S", "-E", str(TRAINER), "folder", str(TRAINER.parent)]
    return [sys.executable, "-m", "prefect_dispatch.job", "run", "--submission", str(document), "--", *program]


def helper_environment() -> dict[str, str]:
    """The environment of a helper that is run by hand, for the first restart."""
    return {**environment_without("DISPATCH_", "SLURM_"), "DISPATCH_RESTART": "0"}
