"""Whether a job could run at all, found out before anything of it is written down."""

from __future__ import annotations

from pathlib import Path

from prefect_dispatch.errors import SpecError
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.schedulers.registry import job_refusal
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.supervisor.places import check_reachable


def check_acceptable(job: ResolvedJob) -> None:
    """Find out, before anything is written, that the job's scheduler would take it and that its stores can be used.

    Raises:
        SpecError: it would not; the text names the field.
        StoreUnreachable: a root is not there and cannot be made; where the record has a root of its own, that one.
    """
    lonely = _describe_workplace_refusal(job)
    if lonely is not None:
        raise SpecError(lonely)
    check_reachable(job.record_root)
    check_reachable(job.root, may_be_away=job.record_root != job.root)
    refusal = job_refusal(job.scheduler, job.spec, Path(job.workdir))
    if refusal is not None:
        raise SpecError(refusal)


def _describe_workplace_refusal(job: ResolvedJob) -> str | None:
    """Say what is wrong with the workplace of a job of several nodes; None where nothing is.

    The wrapper stands outside of them and uploads what lies in its own workplace: a node's share of a save that is
    written to the node's own disk would not be in what is published.
    """
    nodes = job.spec.resources.nodes
    if nodes == 1 or not is_url(job.root) or job.spec.workplace is not None:
        return None
    return (
        f"resources.nodes {nodes} with the root {job.root} needs a workplace: name a folder that all nodes share, "
        "since a save goes to the bucket from there"
    )
