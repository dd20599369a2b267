"""Opening a lineage, or joining one that is open with the same spec."""

from __future__ import annotations

import getpass
import logging
import os

from prefect_dispatch.errors import Exists, LineageError, StoreUnreachable
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import Hold, LineageState
from prefect_dispatch.supervisor.acceptable import check_acceptable
from prefect_dispatch.supervisor.identity import identity_of
from prefect_dispatch.supervisor.places import check_reachable, open_lineage_root, root_visible
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.superseding import supersede

_log = logging.getLogger(__name__)


def open_lineage(
    record: Record, job: ResolvedJob, plan: Plan, *, meant: int | None = None, request: str = ""
) -> LineageState:
    """Open a lineage with a job, or join it where it is open with the same job.

    Where it is finished and the job says ``on_finished: supersede``, its next generation begins: once for each who
    asks, since whoever goes on for them says which generation is meant. What was stopped meanwhile stays so.

    Idempotent, and safe when several do it at once: one append decides.

    Args:
        record: the lineage's record.
        job: the resolved job.
        plan: what its rules become, as it was shown.
        meant: the generation that is to be carried; nothing is opened then. None for whatever there is, or is to be.
        request: by which flow run this is asked for; empty for none.

    Returns:
        The state to go on from; that of a finished lineage, or of another generation, only where one was meant.

    Raises:
        SpecError: the lineage is new, and its scheduler would refuse the job, or a field of its identity
            cannot be told; nothing was changed.
        LineageError: it is finished, or open with another spec; the text names the fields that differ.
        ReadOnlyLineage: the record holds what this version does not know.
        StoreUnreachable: the record root or the checkpoint root cannot be written, or the record that the checkpoint
            root belongs to, or that the generation meant is in, is not there.
        UnknownFormat: the checkpoint root belongs to another record.
    """
    check_reachable(job.record_root)
    while True:
        state = record.refresh()
        record.require_writable()
        if state.opened is not None:
            record.settle_index()
            if meant is not None and (state.finished is not None or state.generation != meant):
                return state
            if state.finished is None:
                _check_same(record.lineage, state.opened, job)
                return state
            begun = _begin_next(record, state, job, plan, request)
            if begun is not None:
                return begun
            continue
        if meant is not None:
            raise StoreUnreachable(
                f"generation {meant} of lineage {record.lineage!r} was opened, and {record.location} holds no record; "
                "is its file system mounted?"
            )
        check_acceptable(job)
        _refuse_second_record(record, job)
        identity = identity_of(job)
        prepared = _prepare_root(record, job)
        try:
            return record.append(
                Opened(
                    spec=job.spec,
                    plan=plan,
                    identity=identity,
                    owner=owner(),
                    root=job.root,
                    record_root=job.record_root,
                    workdir=job.workdir,
                    scheduler=job.scheduler,
                    root_prepared=prepared,
                    request=request,
                )
            )
        except Exists:
            continue


def _refuse_second_record(record: Record, job: ResolvedJob) -> None:
    """Refuse to begin a record for a root that belongs to one already: that one's file system may be away."""
    if record.exists() or not root_visible(job.root):
        return
    belongs_to = open_lineage_root(job.root, record.lineage).record()
    if belongs_to:
        raise StoreUnreachable(
            f"root {job.root}/{record.lineage} belongs to record {belongs_to}, and {record.location} holds no record; "
            "is its file system mounted? If that record is lost for good, give the job another lineage name"
        )


def _prepare_root(record: Record, job: ResolvedJob) -> bool:
    """Make the lineage's root and bind it to the record, where this process can see it.

    From then on a root that is not there is an outage: no execution takes an empty one for a start from scratch.
    """
    record_id = record.id()
    if not root_visible(job.root):
        return False
    try:
        open_lineage_root(job.root, record.lineage).prepare(record_id, record.lineage)
    except StoreUnreachable as error:
        # A record root of its own stands for a checkpoint root that is out of reach here: its job makes it.
        if job.record_root == job.root:
            raise
        _log.warning("%s: %s", record.lineage, error, extra={"action": "root.left_to_its_job"})
        return False
    return True


def require_held(record: Record, meant: str = "") -> Hold:
    """The open hold of a lineage.

    Args:
        record: the lineage's record.
        meant: the hold that it has to be; empty for any.

    Raises:
        LineageError: nothing is held, or it is another hold.
    """
    hold = record.refresh().hold
    if hold is None:
        raise LineageError(f"lineage {record.lineage!r} is not held; there is nothing to run again")
    if meant and hold.opened.hold != meant:
        raise LineageError(
            f"lineage {record.lineage!r} is not held by {meant} but by {hold.opened.hold}: {hold.opened.why}; "
            f"to lift that one, give --run-again {hold.opened.hold}"
        )
    return hold


def owner() -> str:
    """The user in whose name this process acts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _begin_next(record: Record, state: LineageState, job: ResolvedJob, plan: Plan, request: str) -> LineageState | None:
    """Begin the next generation of a finished lineage, if the job says so; None where somebody else was faster."""
    if job.spec.on_finished != "supersede":
        outcome = state.finished.outcome if state.finished is not None else ""
        raise LineageError(
            f"lineage {record.lineage!r} is finished ({outcome}); give the new run a lineage name of its own, or begin "
            f"the next generation: prefect-dispatch supersede {record.lineage} JOB, or say on_finished: supersede"
        )
    note = "the lineage was finished, and the job says on_finished: supersede"
    try:
        return supersede(record, job, plan, who=owner(), note=note, request=request, meant=state.generation)
    except LineageError:
        if record.refresh().generation == state.generation:
            raise
        return None


def differences(opened: Opened, job: ResolvedJob) -> list[str]:
    """The fields in which a job differs from the one that a generation was opened with."""
    fields = list(opened.spec.differences(job.spec))
    for name in ("workdir", "root"):
        if getattr(opened, name) != getattr(job, name) and name not in fields:
            fields.append(name)
    return fields


def _check_same(lineage: str, opened: Opened, job: ResolvedJob) -> None:
    fields = differences(opened, job)
    if fields:
        raise LineageError(
            f"lineage {lineage!r} is open with another spec: {', '.join(fields)} differ; "
            "submit the spec that it was opened with, give the new one a lineage name of its own, or have it take this "
            f"one's place: prefect-dispatch supersede {lineage} JOB"
        )
