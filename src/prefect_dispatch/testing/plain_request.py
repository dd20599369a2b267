"""A submission request for tests of a scheduler, in which only what the test is about has to be said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.model.submission_request import SubmissionRequest


def plain_request(
    workdir: Path,
    *command: str,
    setup: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    resources: Resources | None = None,
    restarts_allowed: bool = False,
    log: Path | None = None,
    token: str | None = None,
) -> SubmissionRequest:
    """Make a request of the lineage ``suite``, with a new token unless one is given."""
    document = Submission(
        lineage="suite",
        record="",
        generation=0,
        submission=1,
        token=token or new_token(),
        root=str(workdir / "root"),
        choice=ResumeChoice(),
        saves=Saves(),
        identity={},
        notice=Notice(),
        restart_source=RestartSource.ENVIRONMENT,
    )
    return SubmissionRequest(
        document=document,
        command=command,
        setup=setup,
        workdir=workdir,
        environment=environment or {},
        resources=resources or Resources(),
        restarts_allowed=restarts_allowed,
        log=log,
    )
