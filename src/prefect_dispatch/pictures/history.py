"""The history of a lineage, put together from its record and its root: what tables and timelines show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Entry, Finished, HoldLifted, HoldOpened, Opened, StopRequested
from prefect_dispatch.model.fold import apply
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.model.state import Execution, LineageState, SubmissionState
from prefect_dispatch.pictures.generations import GenerationRow, generations_of
from prefect_dispatch.pictures.timeline_values import Bar, Mark, MarkKind, Tick
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.supervisor.root_view import RootView

MOST_TICKS = 2000
"""Saves whose times are looked up for one picture; the newest."""


@dataclass(frozen=True, kw_only=True)
class ExecutionRow:
    """One execution.

    Attributes:
        epoch: which.
        attempt: its token.
        object: the scheduler's object.
        state: the scheduler's last word.
        cause: why it ended; None while it has not.
        detail: more about that.
        started_at: when it began to run.
        ended_at: when the scheduler said that it ended.
        exited_at: when its wrapper was done, which may be later; None where nobody knows.
        pin: what it resumed from, scratch included; None where it has not decided, or nobody knows.
        saves: how many publications it has.
        newest_step: the greatest step among them.
        overlap: how long its processes lived beside those of the next execution; None where there was no next one, or
            nobody knows.
        notes: what it found worth telling when it started, such as changed code.
    """

    epoch: Epoch
    attempt: str
    object: ObjectRef | None
    state: ObjectState
    cause: Cause | None
    detail: str
    started_at: datetime | None
    ended_at: datetime | None
    exited_at: datetime | None
    pin: Pin | None
    saves: int
    newest_step: int | None
    overlap: timedelta | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class History:
    """All that pictures and tables of a lineage are made of.

    Attributes:
        state: what the record folds to.
        generations: its generations, in order.
        rows: the executions of all generations, in order.
        ticks: their saves.
        resumed_ticks: for each row the tick that it went on from; None where there is none.
        marks: holds, stops and the end.
        faults: what of the root could not be read.
    """

    state: LineageState
    generations: tuple[GenerationRow, ...]
    rows: tuple[ExecutionRow, ...]
    ticks: tuple[Tick, ...]
    resumed_ticks: tuple[int | None, ...]
    marks: tuple[Mark, ...]
    faults: tuple[str, ...]

    def bars(self) -> tuple[Bar, ...]:
        """The executions that began to run, as bars."""
        several = len(self.generations) > 1
        return tuple(
            Bar(
                label=f"{f'generation {row.epoch.generation}, ' if several else ''}submission {row.epoch.submission}",
                epoch=str(row.epoch),
                started_at=row.started_at,
                ended_at=row.ended_at,
                last_seen_alive=row.exited_at if row.ended_at is not None else None,
                cause=str(row.cause) if row.cause is not None else "",
                resumed_from=resumed_words(row),
                resumed_tick=tick,
            )
            for row, tick in zip(self.rows, self.resumed_ticks, strict=True)
            if row.started_at is not None
        )


def resumed_words(row: ExecutionRow) -> str:
    """What an execution went on from, in words; empty where nobody knows."""
    if row.pin is None:
        return ""
    source = row.pin.publication
    return f"{source.epoch} step {source.step}" if source is not None else "scratch"


def history_of(entries: Sequence[Entry], root: RootView | None) -> History:
    """Put a lineage's history together.

    Args:
        entries: the whole record.
        root: the lineage's root; None where it cannot be reached.
    """
    state = LineageState()
    runs: dict[tuple[int, int, int], tuple[SubmissionState, Execution]] = {}
    marks: list[Mark] = []
    for entry in entries:
        state = apply(state, entry)
        marks += _marks(entry)
        for submission in (*state.obligations, *state.submissions):
            for execution in submission.executions:
                runs[submission.generation, submission.n, execution.restart] = (submission, execution)
    publications = (root.publications() if root is not None else None) or []
    rows = _rows([runs[key] for key in sorted(runs)], publications, root)
    ticks = _ticks(rows, publications, root)
    numbers = {publication: number for number, publication in enumerate(ticks)}
    sources = (row.pin.publication if row.pin is not None else None for row in rows)
    resumed = tuple(numbers.get(source) if source is not None else None for source in sources)
    faults = root.faults if root is not None else ()
    return History(state, generations_of(entries), rows, tuple(ticks.values()), resumed, tuple(marks), faults)


def _marks(entry: Entry) -> list[Mark]:
    fact = entry.fact
    match fact:
        case HoldOpened():
            return [Mark(entry.at, MarkKind.HOLD, f"held: {fact.why}")]
        case HoldLifted():
            return [Mark(entry.at, MarkKind.SIGNAL, f"{fact.resolution.replace('_', ' ')} ({fact.lifted_by})")]
        case StopRequested():
            return [Mark(entry.at, MarkKind.SIGNAL, "stop requested")]
        case Finished():
            return [Mark(entry.at, MarkKind.FINISH, f"{fact.outcome}: {fact.detail}")]
        case Opened() if entry.generation > 0:
            return [Mark(entry.at, MarkKind.SIGNAL, f"generation {entry.generation} opened")]
        case _:
            return []


def _rows(
    runs: Sequence[tuple[SubmissionState, Execution]], publications: Sequence[Publication], root: RootView | None
) -> tuple[ExecutionRow, ...]:
    steps: dict[Epoch, list[int]] = {}
    for publication in publications:
        steps.setdefault(publication.epoch, []).append(publication.step)
    rows: list[ExecutionRow] = []
    for position, (submission, execution) in enumerate(runs):
        epoch, attempt = submission.epoch(execution.restart), submission.attempt(execution.restart)
        own = steps.get(epoch, [])
        exited_at = root.exited_at(attempt) if root is not None else None
        following = runs[position + 1][1] if position + 1 < len(runs) else None
        ended = execution.ended
        rows.append(
            ExecutionRow(
                epoch=epoch,
                attempt=attempt,
                object=submission.object,
                state=execution.state,
                cause=ended.cause if ended is not None else None,
                detail=ended.detail if ended is not None else "",
                started_at=execution.started_at,
                ended_at=(ended.ended_at or execution.ended_at) if ended is not None else None,
                exited_at=exited_at,
                pin=root.pin(attempt) if root is not None else None,
                saves=len(own),
                newest_step=max(own, default=None),
                overlap=_overlap(exited_at, following),
                notes=root.notes(attempt) if root is not None else (),
            )
        )
    return tuple(rows)


def _overlap(exited_at: datetime | None, following: Execution | None) -> timedelta | None:
    if exited_at is None or following is None or following.started_at is None:
        return None
    return max(exited_at - following.started_at, timedelta(0))


def _ticks(
    rows: Sequence[ExecutionRow], publications: Sequence[Publication], root: RootView | None
) -> dict[Publication, Tick]:
    if root is None:
        return {}
    bars = {row.epoch: index for index, row in enumerate(row for row in rows if row.started_at is not None)}
    drawn = [publication for publication in publications[-MOST_TICKS:] if publication.epoch in bars]
    return {
        publication: Tick(bars[publication.epoch], at, publication.step)
        for publication, at in root.saved_at(drawn).items()
    }
