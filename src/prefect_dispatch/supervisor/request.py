"""From the record to what a scheduler is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.model.deadline import terms_of, time_left, within_time_left
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.state import LineageState, SubmissionState
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.stores.s3_accesses import variables_for


def secrets_of(opened: Opened) -> Mapping[str, str]:
    """The variables that open the root of a job, where the environment that it inherits does not.

    Raises:
        StoreUnreachable: there are no credentials.
    """
    return variables_for(opened.root) if is_url(opened.root) else {}


def request_of(
    lineage: str,
    record_id: str,
    opened: Opened,
    submission: SubmissionState,
    secrets: Mapping[str, str],
    in_time: Callable[[], bool],
    state: LineageState,
) -> SubmissionRequest:
    """Everything that a scheduler needs for one submission, and whether it may still be made.

    All of it comes from facts, but for the secrets.

    Args:
        lineage: its name.
        record_id: the id of its record.
        opened: what its generation was opened with.
        submission: which one.
        secrets: what opens its root.
        in_time: whether it may still be made.
        state: the state with that submission; what a total deadline leaves is told by it.
    """
    spec = opened.spec
    document = Submission(
        lineage=lineage,
        record=record_id,
        generation=submission.generation,
        submission=submission.n,
        token=submission.token,
        root=opened.root,
        choice=ResumeChoice.decode(submission.base, submission.floor, f"submission {submission.n} of {lineage}"),
        saves=spec.saves,
        identity=opened.identity,
        notice=spec.checkpoint_cancelation.notice or Notice(period=timedelta(0)),
        restart_source=RestartSource.ENVIRONMENT,
        root_prepared=opened.root_prepared,
        watch_interval=spec.watch_interval,
        shared_checkpoint=spec.shared_checkpoint,
        identity_from=spec.identity_providers() or None,
        workplace=spec.workplace or "",
        record_root=opened.record_root if opened.record_root != opened.root else "",
        deadline=terms_of(state),
    )
    return SubmissionRequest(
        document=document,
        command=spec.command,
        setup=spec.setup,
        workdir=Path(opened.workdir),
        environment=spec.environment,
        resources=within_time_left(spec.resources, time_left(state, submission.at)),
        restarts_allowed=submission.restarts_allowed,
        log=None if spec.log == "auto" else Path(opened.workdir) / spec.log,
        secrets=secrets,
        in_time=in_time,
    )
