"""The lineage of a flow run's job, whose name may have placeholders for what the run alone knows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from prefect_dispatch.model.placeholders import fill
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.tasks.held_run import lineage_of


def named(job: JobSpec, run: FlowRun | None) -> JobSpec:
    """A job with the lineage that it has in a run. The same each time: it stays with the time of the first start.

    Args:
        job: the job.
        run: the flow run; None outside of one.

    Raises:
        SpecError: the name asks for a flow run, and there is none.
    """
    own = _fill(job.lineage, run) if run is not None else fill(job.lineage, datetime.now(UTC), None)
    return job if own == job.lineage else job.model_copy(update={"lineage": own})


def lineage_name(run: FlowRun) -> str:
    """The lineage of a run, whether it has begun to carry it or not; empty where that cannot be told."""
    job = run.parameters.get("job")
    name = job.get("lineage") if isinstance(job, Mapping) else None
    return _fill(name, run) if isinstance(name, str) else lineage_of(run)


def present_run() -> FlowRun | None:
    """The flow run that this is; None outside of one."""
    context = FlowRunContext.get()
    return context.flow_run if context is not None else None


def run_name() -> str:
    """The name of the run that begins: its flow's, and its lineage."""
    context = FlowRunContext.get()
    if context is None or context.flow is None or context.flow_run is None:
        return "supervise"
    job = (context.parameters or {}).get("job")
    lineage = named(job, context.flow_run).lineage if isinstance(job, JobSpec) else lineage_name(context.flow_run)
    return f"{context.flow.name}-{lineage}"


def _fill(name: str, run: FlowRun) -> str:
    return fill(name, run.expected_start_time or run.created or datetime.now(UTC), str(run.id))
