"""Starting a run that takes a lineage over which nobody carries any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound

from prefect_dispatch.errors import SpecError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.model.facts import Entry
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.beats import DEAD_AFTER
from prefect_dispatch.supervisor.carriers import carried_generation, taken_at
from prefect_dispatch.tasks.held_run import HELD_TAG, generation_of, generation_tag, is_dress, lineage_tag

ADOPTER_TAG = "adopter"
PAGE = 200
TELL_AFTER = 5
"""How many runs in a row have to come to nothing before somebody is told: by then the next one is minutes away."""
MOST_LOOKED_AT = 50
"""Adopters of a generation in which a person's word may lie that nobody has read; the latest."""
LONGEST_DELAY = timedelta(hours=1)


LONGEST_START = timedelta(hours=1)
"""How long a worker may need to get a run's process going, images and all."""
READ_UP_TO = "prefect-dispatch.read-up-to"
"""The label that tells up to which fact the record was read that had an adopter started."""


def key_of(record: str, seq: int, number: int) -> str:
    """The idempotency key of the number-th adopter of a record at a fact: whoever asks how often, it is one run."""
    return f"prefect-dispatch-{record}-{seq}-{number}"


def is_adopter(run: FlowRun, record: str) -> bool:
    """Whether a run was started to take over the lineage of a record, and not one of that name on another root."""
    return ADOPTER_TAG in run.tags and (run.idempotency_key or "").startswith(f"prefect-dispatch-{record}-")


def is_next(run: FlowRun, entries: Sequence[Entry], record: Callable[[], str]) -> bool:
    """Whether a run was started to take over from where the record stands, and nobody has carried the job since.

    What a person asks of it, in the queue or before it said that it carries the job, is asked of the job.

    Args:
        run: the run.
        entries: the record's.
        record: tells the record's id; asked only for what may be an adopter.
    """
    seq = run.labels.get(READ_UP_TO)
    if ADOPTER_TAG not in run.tags or not isinstance(seq, int) or seq < taken_at(entries):
        return False
    present = max((each.generation for each in entries), default=0)
    return generation_of(run) == present and is_adopter(run, record())


async def read_adopters(client: PrefectClient, lineage: str, record: str, generation: int) -> list[FlowRun]:
    """The runs that were started last to take a generation over, newest first."""
    tags = FlowRunFilterTags(all_=[lineage_tag(lineage), generation_tag(generation), ADOPTER_TAG])
    chosen, newest = FlowRunFilter(tags=tags), FlowRunSort.EXPECTED_START_TIME_DESC
    found = await client.read_flow_runs(flow_run_filter=chosen, limit=MOST_LOOKED_AT, sort=newest)
    return [run for run in found if is_adopter(run, record)]


def is_on_its_way(run: FlowRun, entries: Sequence[Entry], carrier: str | None) -> bool:
    """Whether an adopter will yet carry the job: what has carried it before, and was overtaken, will not."""
    if run.state is not None and run.state.is_final():
        return False
    return str(run.id) == carrier or carried_generation(entries, str(run.id)) is None


def has_stuck(run: FlowRun, now: datetime) -> bool:
    """Whether an adopter has been about to carry the job for so long that its process, or its worker, must be dead."""
    if run.state is None or not (run.state.is_running() or run.state.is_pending()):
        return False
    return now - run.state.timestamp > (DEAD_AFTER if run.state.is_running() else LONGEST_START)


def delay_before(number: int) -> timedelta:
    """How long after the end of an adopter that came to nothing the next one is started: at once, then ever later."""
    return timedelta(0) if number <= 1 else min(timedelta(minutes=2 ** min(number - 2, 10)), LONGEST_DELAY)


async def deployment_of(client: PrefectClient, run: FlowRun | None, named: str) -> UUID:
    """The deployment that a lineage's runs are started from: that of its last run if it is there, else the named one.

    A run of flow ``supersede``, which has more parameters than the job, is not one to start once more.

    Raises:
        SpecError: there is none of that name.
    """
    if run is not None and run.deployment_id is not None and run.parameters.keys() == {"job"}:
        try:
            return (await client.read_deployment(run.deployment_id)).id
        except ObjectNotFound:
            pass  # It was deleted; the run keeps its id.
    try:
        return (await client.read_deployment_by_name(named)).id
    except ObjectNotFound:
        raise SpecError(f"there is no deployment {named!r} to start a run from; deploy flow supervise") from None


def own_tags(run: FlowRun | None) -> list[str]:
    """The tags that a person has given a run, beside those of this package and of Prefect."""
    theirs = {HELD_TAG, ADOPTER_TAG, "auto-scheduled"}
    return [tag for tag in run.tags if not is_dress(tag) and tag not in theirs] if run is not None else []


def variables_for(deployment: UUID, run: FlowRun | None) -> dict[str, Any] | None:
    """What a run was started with, for one that follows it; of another deployment only what each kind of pool has."""
    given = (run.job_variables if run is not None else None) or {}
    same = run is not None and run.deployment_id == deployment
    return {name: value for name, value in given.items() if same or name == "env"} or None


@dataclass(frozen=True)
class Vacancy:
    """A lineage that nobody carries, as its record stands.

    Attributes:
        lineage: its name.
        record: its record's id.
        seq: the place of the last fact that is more than a taking over.
        state: what the record folds to.
        run: the run that carried it last; None where Prefect knows none.
    """

    lineage: str
    record: str
    seq: int
    state: LineageState
    run: FlowRun | None = None


@dataclass(frozen=True)
class Earlier:
    """The adopters that were started so far for a vacancy.

    Attributes:
        count: how many.
        last: the last one; None for none.
    """

    count: int
    last: FlowRun | None = None

    @property
    def failing(self) -> str:
        """That they keep coming to nothing, in words; empty while that is too early to say."""
        state = self.last.state if self.last is not None else None
        if self.last is None or state is None or not state.is_final() or self.count < TELL_AFTER:
            return ""
        said = f"{state.name}: {state.message}" if state.message else state.name
        return f"{self.count} runs that were to take it over came to nothing, the last is {self.last.id}, {said}"


async def earlier_adopters(client: PrefectClient, vacancy: Vacancy) -> Earlier:
    """Ask for the adopters of a vacancy by their keys, which have no end: one request for every 200."""
    earlier = Earlier(0)
    while True:
        numbers = range(earlier.count, earlier.count + PAGE)
        keys = {key_of(vacancy.record, vacancy.seq, number): number for number in numbers}
        chosen = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=list(keys)))
        page = await client.read_flow_runs(flow_run_filter=chosen, limit=PAGE)
        found = {keys[run.idempotency_key or ""]: run for run in page}
        if not found:
            return earlier
        earlier = Earlier(max(found) + 1, found[max(found)])
        if len(found) < PAGE:
            return earlier


async def adopt(
    client: PrefectClient, deployment: UUID, vacancy: Vacancy, earlier: Earlier, now: datetime
) -> FlowRun | None:
    """Start a run that takes a lineage over. Idempotent for a record at a fact.

    Only a run that is over without having moved the record is followed by another, each later than the one before, and
    by as many as it takes: what keeps them from their work may be mended any day.

    Args:
        client: Prefect.
        deployment: where the run is started from.
        vacancy: the lineage.
        earlier: the adopters that it had so far.
        now: the time.

    Returns:
        The run, if this started one; None where one is on its way, or is not due yet.
    """
    state, before = vacancy.state, earlier.last
    if state.opened is None:
        return None
    if before is not None:
        if before.state is None or not before.state.is_final():
            return None
        if now - before.state.timestamp < delay_before(earlier.count):
            return None
    reach("prefect.adopt")
    return await client.create_flow_run_from_deployment(
        deployment,
        parameters={"job": state.opened.spec.model_dump(mode="json")},
        idempotency_key=key_of(vacancy.record, vacancy.seq, earlier.count),
        tags=[*own_tags(vacancy.run), lineage_tag(vacancy.lineage), generation_tag(state.generation), ADOPTER_TAG],
        job_variables=variables_for(deployment, vacancy.run),
        name=f"supervise-{vacancy.lineage}",
        labels={READ_UP_TO: state.seq},
    )
