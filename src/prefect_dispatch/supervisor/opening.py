"""Opening a lineage, or joining one that is open with the same spec."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from prefect_dispatch.errors import Exists, LineageError, SpecError
from prefect_dispatch.model.facts import Finished, HoldLifted, LiftedBy, Opened, Resolution
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.registry import job_refusal
from prefect_dispatch.supervisor.places import check_reachable
from prefect_dispatch.supervisor.record import Record


def open_lineage(record: Record, job: ResolvedJob, plan: Plan) -> LineageState:
    """Open a lineage with a job, or join it where it is open with the same job.

    Idempotent, and safe when several do it at once: one append decides.

    Args:
        record: the lineage's record.
        job: the resolved job.
        plan: what its rules become, as it was shown.

    Returns:
        The state to go on from.

    Raises:
        SpecError: the lineage is new, and its scheduler would refuse the job; nothing was changed.
        LineageError: it is finished, or open with another spec; the text names the fields that differ.
        ReadOnlyLineage: the record holds what this version does not know.
        StoreUnreachable: the record root cannot be written.
    """
    check_reachable(job.record_root)
    while True:
        state = record.refresh()
        record.require_writable()
        if state.opened is not None:
            _check_same(record.lineage, state.opened, state.finished, job)
            return state
        check_acceptable(job)
        record.id()
        try:
            return record.append(
                Opened(
                    spec=job.spec,
                    plan=plan,
                    identity=job.spec.identity_digests(),
                    owner=owner(),
                    root=job.root,
                    record_root=job.record_root,
                    workdir=job.workdir,
                    scheduler=job.scheduler,
                )
            )
        except Exists:
            continue


def check_acceptable(job: ResolvedJob) -> None:
    """Find out, before anything is written, that the job's scheduler would take it.

    Raises:
        SpecError: it would not; the text names the field.
    """
    refusal = job_refusal(job.scheduler, job.spec, Path(job.workdir))
    if refusal is not None:
        raise SpecError(refusal)


def run_again(record: Record, who: str, note: str = "") -> LineageState:
    """Lift the open hold of a lineage in a person's name, so that the job runs again.

    Raises:
        LineageError: nothing is held.
    """
    while True:
        state = record.refresh()
        if state.hold is None:
            raise LineageError(f"lineage {record.lineage!r} is not held; there is nothing to run again")
        try:
            return record.append(
                HoldLifted(
                    hold=state.hold.opened.hold,
                    lifted_by=LiftedBy.PERSON,
                    resolution=Resolution.RUN_AGAIN,
                    who=who,
                    note=note,
                )
            )
        except Exists:
            continue


def owner() -> str:
    """The user in whose name this process acts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _check_same(lineage: str, opened: Opened, finished: Finished | None, job: ResolvedJob) -> None:
    if finished is not None:
        raise LineageError(
            f"lineage {lineage!r} is finished ({finished.outcome}); give the new run a lineage name of its own"
        )
    fields = list(opened.spec.differences(job.spec))
    for name in ("workdir", "root"):
        if getattr(opened, name) != getattr(job, name) and name not in fields:
            fields.append(name)
    if fields:
        raise LineageError(
            f"lineage {lineage!r} is open with another spec: {', '.join(fields)} differ; "
            "submit the spec that it was opened with, or supersede it"
        )
