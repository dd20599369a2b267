"""Superseding: a changed job takes the place of the one that a lineage was opened with. One fact decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prefect_dispatch.errors import Exists, LineageError
from prefect_dispatch.format.epoch import MAX_GENERATION, Epoch
from prefect_dispatch.format.resume_choice import LATEST, SCRATCH
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.superseding import schema_doubt
from prefect_dispatch.schedulers.registry import same_queue
from prefect_dispatch.supervisor.acceptable import check_acceptable
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.identity import identity_of
from prefect_dispatch.supervisor.named_save import require_whole
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.root_view import RootView


def supersede(
    record: Record,
    job: ResolvedJob,
    plan: Plan,
    *,
    who: str,
    resume: str | None = None,
    note: str = "",
    request: str = "",
    meant: int | None = None,
) -> LineageState:
    """Open the next generation of a lineage with a job, whether the present one is open or finished.

    What still runs of the older generations, or is on its way, is owed from then on to whoever looks after the
    lineage: it is looked for, asked to stop, and not waited for. Nothing of this is done here.

    Args:
        record: the lineage's.
        job: the resolved job.
        plan: what its rules become.
        who: the person.
        resume: ``latest``, ``scratch`` or a save, by its path or its full name: the new generation goes on from
            there, and from its own saves as soon as it has any. None to go on as the present one would.
        note: why, for the record.
        request: by whom this was asked for; who asks again with the same words finds that it is done. Empty for nobody.
        meant: the generation that is to be superseded; the present one where None.

    Returns:
        The state with the new generation; for a request that was carried out before, the present state.

    Raises:
        LineageError: the lineage was never opened; or another supersession was faster; or the job has another root or
            scheduler, the named save is not there or not whole, or the checkpoints' schema has changed and nobody said
            where to go on from. Nothing was changed.
        SpecError: the scheduler would refuse the job, or a field of its identity cannot be told; nothing was changed.
        ReadOnlyLineage: the record holds what this version does not know.
        StoreUnreachable: the record root or the checkpoint root cannot be used.
    """
    if not (request and is_done(record, request)):
        require_opened(record, record.refresh())
        check_acceptable(job)
    return decide(
        record,
        job,
        plan,
        identity_of,
        lambda state: root_view_of(record.lineage, state),
        Asked(who, resume, note, request, meant),
    )


@dataclass(frozen=True)
class Asked:
    """What a person asks for who supersedes a job; see :func:`supersede`."""

    who: str
    resume: str | None = None
    note: str = ""
    request: str = ""
    meant: int | None = None


def decide(
    record: Record,
    job: ResolvedJob,
    plan: Plan,
    identity_of: Callable[[ResolvedJob], dict[str, str]],
    root_of: Callable[[LineageState], RootView | None],
    asked: Asked,
) -> LineageState:
    """Append the one fact, right behind what was read; see :func:`supersede`, which looks at the job before.

    Args:
        record: the lineage's.
        job: the resolved job.
        plan: what its rules become.
        identity_of: tells the job's identity; asked once, and only if the job is to be opened.
        root_of: the lineage's root as this process sees it.
        asked: what a person wants.
    """
    meant, identity = asked.meant, None
    while True:
        state = record.refresh()
        record.require_writable()
        if asked.request and is_done(record, asked.request):
            return state
        opened = require_opened(record, state)
        meant = state.generation if meant is None else meant
        if state.generation != meant:
            raise LineageError(
                f"generation {meant} of lineage {record.lineage!r} was superseded already, by {opened.owner} with "
                f"generation {state.generation}; look at that one first, and supersede it if it is to go too"
            )
        _check_places(record.lineage, state, opened, job)
        identity = identity if identity is not None else identity_of(job)
        base, floor = choice_of(record.lineage, state, opened, job, identity, asked.resume, root_of(state))
        try:
            return record.append(
                Opened(
                    spec=job.spec,
                    plan=plan,
                    identity=identity,
                    owner=asked.who,
                    root=job.root,
                    record_root=job.record_root,
                    workdir=job.workdir,
                    scheduler=job.scheduler,
                    # The root was made when the lineage was opened: what is not there now is away, and no new one.
                    root_prepared=opened.root_prepared,
                    base=base,
                    floor=floor,
                    parent=state.generation,
                    request=asked.request,
                    note=asked.note,
                ),
                state.generation + 1,
            )
        except Exists:
            continue


def require_opened(record: Record, state: LineageState) -> Opened:
    """What the present generation was opened with.

    Raises:
        LineageError: there is none.
        StoreUnreachable: there is one, and its record is away.
    """
    if state.opened is None:
        raise record.why_not_opened()
    return state.opened


def is_done(record: Record, request: str) -> bool:
    """Whether a supersession was carried out, by the word that it was asked for with."""
    return any(isinstance(each.fact, Opened) and each.fact.request == request for each in record.entries())


def choice_of(
    lineage: str,
    state: LineageState,
    opened: Opened,
    job: ResolvedJob,
    identity: Mapping[str, str],
    resume: str | None,
    root: RootView | None,
) -> tuple[str, int]:
    """Base and floor of the new generation; they travel with each of its submissions."""
    generation = state.generation + 1
    if generation > MAX_GENERATION:
        raise LineageError(f"lineage {lineage!r} has had all {MAX_GENERATION} generations; give the job another name")
    if resume is None:
        doubt = schema_doubt(opened, job.spec, identity)
        if doubt:
            raise LineageError(
                f"{doubt}; say from where generation {generation} goes on: "
                f"prefect-dispatch supersede {lineage} JOB --resume scratch, --resume latest or --resume PUBLICATION"
            )
        return state.base, state.floor
    first = Epoch(generation, 1, 0)
    if resume not in (LATEST, SCRATCH):
        return require_whole(lineage, root, resume, first).name, first.number
    return resume, first.number


def _check_places(lineage: str, state: LineageState, opened: Opened, job: ResolvedJob) -> None:
    """A generation is in the root of its lineage, and where its processes can be ended who may still write there."""
    for name in ("root", "record_root"):
        if getattr(opened, name) != getattr(job, name):
            raise LineageError(
                f"lineage {lineage!r} has {name} {getattr(opened, name)!r}, and the job {getattr(job, name)!r}: a "
                "generation keeps the root of its lineage; set it back, or give the job a lineage name of its own"
            )
    if same_queue(opened.scheduler, job.scheduler):
        return
    shared = opened.spec.shared_checkpoint or job.spec.shared_checkpoint
    known = (*state.obligations, *state.submissions)
    if any(each.may_run for each in known) or (shared and known):
        raise LineageError(
            f"lineage {lineage!r} has something at another scheduler than the job's, which cannot be ended or asked "
            f"about from there; keep the scheduler, or end the job first: prefect-dispatch stop {lineage}"
        )
