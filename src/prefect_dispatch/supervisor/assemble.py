"""Putting a supervisor together from what a lineage was opened with."""

from __future__ import annotations

from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan, plan
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.registry import scheduler_of
from prefect_dispatch.stores.opening import join_root, open_store
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.identity import unseen_fields
from prefect_dispatch.supervisor.places import open_lineage_root, root_visible
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.reports_view import ReportsView
from prefect_dispatch.supervisor.root_view import RootView


def plan_of(job: ResolvedJob) -> Plan:
    """What a job's rules become on its scheduler, as this process sees it.

    Raises:
        SpecError: this version does not have its scheduler.
    """
    capabilities = scheduler_of(job.scheduler).capabilities
    return plan(job.spec, capabilities, root_visible=root_visible(job.root), unseen=unseen_fields(job))


def root_view_of(lineage: str, state: LineageState) -> RootView | None:
    """The root of an open lineage; None where this process cannot see it."""
    if state.opened is None or not root_visible(state.opened.root):
        return None
    return RootView(open_lineage_root(state.opened.root, lineage))


def supervisor_of(record: Record, state: LineageState, clock: Clock) -> Supervisor:
    """A supervisor for an open lineage, from its record alone.

    Raises:
        LineageError: the lineage was never opened.
        SpecError: this version does not have its scheduler.
    """
    if state.opened is None:
        raise record.why_not_opened()
    reports = ReportsView(open_store(join_root(state.opened.record_root, record.lineage)))
    scheduler = scheduler_of(state.opened.scheduler)
    return Supervisor(record, scheduler, root_view_of(record.lineage, state), clock, reports, state.generation)
