"""Whether a job could run at all, found out before anything of it is written down."""

from __future__ import annotations

from pathlib import Path

from prefect_dispatch.errors import SpecError
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.schedulers.registry import job_refusal
from prefect_dispatch.supervisor.places import check_reachable


def check_acceptable(job: ResolvedJob) -> None:
    """Find out, before anything is written, that the job's scheduler would take it and that its stores can be used.

    Raises:
        SpecError: it would not; the text names the field.
        StoreUnreachable: a root is not there and cannot be made; where the record has a root of its own, that one.
    """
    check_reachable(job.record_root)
    check_reachable(job.root, may_be_away=job.record_root != job.root)
    refusal = job_refusal(job.scheduler, job.spec, Path(job.workdir))
    if refusal is not None:
        raise SpecError(refusal)
