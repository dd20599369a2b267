"""A flow run as the place where a person answers a hold: its name, its tags, the question, the answers."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import PrefectHTTPStatusError
from prefect.input import RunInput, keyset_from_paused_state
from prefect.input.actions import acreate_flow_run_input, aread_flow_run_input
from prefect.states import Paused, Suspended

from prefect_dispatch.failpoints import reach

HELD_TAG = "held"
PAUSE_BEYOND = timedelta(days=2)
"""How long after a hold's end Prefect gives up the pause: what ends a hold is its record, and that needs a poll."""
PAUSE_AT_MOST = timedelta(days=366)
"""How long a process waits for a person where the hold itself has no end: Prefect wants a number."""
MOST_ROUNDS = 100
"""How often one hold is asked about in one run."""
MOST_NAME = 200
_PREFIX = "hold-"
_LINEAGE = "lineage:"
_GENERATION = "generation:"
_CONFLICT = 409


class Way(enum.StrEnum):
    """How a flow run waits for a person."""

    SUSPEND = "suspended"
    """It has no process meanwhile, and starts again from the top."""
    PAUSE = "paused"
    """Its process waits."""
    END = "ended"
    """It does not: it ends as held."""


def lineage_tag(lineage: str) -> str:
    """The tag by which the runs of a lineage are found together."""
    return f"{_LINEAGE}{lineage}"


def lineage_of(run: FlowRun) -> str:
    """The lineage that a run is tagged with; empty where it is not."""
    return next((tag.removeprefix(_LINEAGE) for tag in run.tags if tag.startswith(_LINEAGE)), "")


def own_name(run: FlowRun, lineage: str) -> str:
    """The name of a run that is not held: as its flow gives it, which is told by its parameters."""
    return f"{'supersede' if 'lineage' in run.parameters else 'supervise'}-{lineage}"


def generation_tag(generation: int) -> str:
    """The tag that tells which generation of its lineage a run carries."""
    return f"{_GENERATION}{generation}"


def generation_of(run: FlowRun) -> int | None:
    """The generation that a run is tagged with; None where it is not."""
    numbers = (tag.removeprefix(_GENERATION) for tag in run.tags if tag.startswith(_GENERATION))
    return next((int(number) for number in numbers if number.isascii() and number.isdigit()), None)


def is_dress(tag: str) -> bool:
    """Whether a tag tells the lineage or the generation of a run."""
    return tag.startswith((_LINEAGE, _GENERATION))


def question_of(hold: str, number: int) -> str:
    """The key of the number-th question about a hold in one run. A run answers each key once."""
    return f"{_PREFIX}{hold}-{number}"


def is_question(pause_key: str | None) -> bool:
    """Whether a pause is one that a hold was asked about with."""
    return pause_key is not None and pause_key.startswith(_PREFIX)


async def dress(client: PrefectClient, run: UUID, tags: Iterable[str], *, held: bool, name: str | None = None) -> None:
    """Give a run its tags, and a name if there is to be another one; nothing is asked for that is so already."""
    flow_run = await client.read_flow_run(run)
    worn = ({*flow_run.tags} - {HELD_TAG}) | {*tags} | ({HELD_TAG} if held else set())
    changes: dict[str, Any] = {}
    if worn != {*flow_run.tags}:
        changes["tags"] = sorted(worn)
    if name is not None and name != flow_run.name:
        changes["name"] = name[:MOST_NAME]
    if changes:
        reach("prefect.dress")
        await client.update_flow_run(run, **changes)


async def dress_as_held(client: PrefectClient, run: UUID, tags: Iterable[str], name: str) -> None:
    """Say of a run that it is held, if it waits: one that a person has resumed meanwhile goes on already."""
    flow_run = await client.read_flow_run(run)
    if flow_run.state is not None and flow_run.state.is_paused():
        await dress(client, run, tags, held=True, name=name)


def open_question(run: FlowRun, hold: str) -> str | None:
    """The key of the question about a hold that a run waits with, if any: it was asked, though the reply was lost."""
    key = run.state.state_details.pause_key if run.state is not None and run.state.is_paused() else None
    return key if key is not None and key.startswith(f"{_PREFIX}{hold}-") else None


def last_asked(run: FlowRun) -> str | None:
    """The hold that a run was last asked about, by its id."""
    asked = [key.split("-") for key in run.empirical_policy.pause_keys or () if key.startswith(_PREFIX)]
    holds = [parts[1] for parts in asked if len(parts) == 3 and parts[1][1:].isdigit()]
    return max(holds, key=lambda hold: int(hold[1:]), default=None)


async def last_answer(run: FlowRun, hold: str) -> tuple[dict[str, Any] | None, int]:
    """What was answered when a run was last asked about a hold, if anything; and that question's number, 0 for none.

    Answers are read by name and not where a pause returns: the process that asked may be gone, and so may Prefect's
    memory that it asked, as in a run that was started again by hand. An answer to an earlier question does not count:
    it came to nothing, and the person was asked again. One that cannot be read chooses nothing.
    """
    fired = run.empirical_policy.pause_keys or set()
    last = None
    for number in range(1, MOST_ROUNDS):
        question = question_of(hold, number)
        values = None
        for way in (Way.SUSPEND, Way.PAUSE):
            values = values or await _read_input(run.id, f"{way}-{question}-response")
        if values is None and question not in fired:
            return last, number - 1
        last = values if isinstance(values, dict) or values is None else {}
    return last, MOST_ROUNDS


async def put_question(
    client: PrefectClient,
    run: FlowRun,
    question: str,
    form: type[RunInput],
    page: str,
    way: Way,
    until: datetime | None,
) -> State[Any] | None:
    """Pause or suspend a run with a form. Idempotent: a call whose reply was lost is finished by the next one.

    Args:
        client: Prefect.
        run: the run, as it was just read.
        question: its key.
        form: what a person fills in.
        page: what stands above it, in Markdown.
        way: paused or suspended.
        until: when the hold itself ends; None for one without an end.

    Returns:
        The state that the run is in now; None where it is in another one and cannot be asked: it was cancelled, say.
    """
    timeout = _timeout(way, until)
    make = Suspended if way is Way.SUSPEND else Paused
    state: State[Any] = make(timeout_seconds=timeout, pause_key=question)
    keys = keyset_from_paused_state(state)
    state.state_details.run_input_keyset = dict[str, str](keys.items())
    paused = run.state if _asks(run.state, question) else None
    if paused is None:
        reach("prefect.pause")
        answer = await client.set_flow_run_state(run.id, state)
        if answer.status is not SetStateStatus.ACCEPT:
            paused = (await client.read_flow_run(run.id)).state
            if not _asks(paused, question):
                return None
        else:
            paused = answer.state
    # The schema comes last: with it the question can be answered, and then nothing is missing.
    reach("prefect.form-page")
    await _once(acreate_flow_run_input(keys["description"], page, flow_run_id=run.id))
    reach("prefect.form")
    await _once(form.asave(keys, run.id))
    return paused


async def is_complete(run: FlowRun) -> bool:
    """Whether a paused run can be answered: who asked may have died between the pause and the form."""
    keys = run.state.state_details.run_input_keyset if run.state is not None else None
    return keys is None or isinstance(await _read_input(run.id, keys["schema"]), dict)


async def _read_input(run: UUID, key: str) -> Any:
    """What is stored for a run, None for nothing. Anybody can store anything: what is no JSON is read as a text."""
    try:
        return await aread_flow_run_input(key, flow_run_id=run)
    except ValueError:
        return "not JSON"


def _asks(state: State[Any] | None, question: str) -> bool:
    return state is not None and state.is_paused() and state.state_details.pause_key == question


def _timeout(way: Way, until: datetime | None) -> int | None:
    if until is None:
        return None if way is Way.SUSPEND else int(PAUSE_AT_MOST.total_seconds())
    left = max(until - datetime.now(UTC), timedelta(0))
    return int((left + PAUSE_BEYOND).total_seconds())


async def _once(creating: Any) -> None:
    try:
        await creating
    except PrefectHTTPStatusError as error:
        if error.response.status_code != _CONFLICT:
            raise
