"""The steps that a supervisor can take for a lineage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.model.facts import Fact, Finished, Outcome
from prefect_dispatch.model.state import Hold, SubmissionState


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Hand the job to the scheduler as submission ``n``."""

    n: int
    base: str
    floor: int
    restarts_allowed: bool


@dataclass(frozen=True, kw_only=True)
class Requeue:
    """Have the same object run again as restart ``restart``."""

    submission: SubmissionState
    restart: int


@dataclass(frozen=True, kw_only=True)
class ForbidRestarts:
    """Tell the scheduler not to restart the object by itself any more."""

    submission: SubmissionState


@dataclass(frozen=True, kw_only=True)
class Retire:
    """Forbid restarts, ask for a stop, and see that the object has ended, before another one is submitted."""

    submission: SubmissionState


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """Take an object for gone on a person's word, after asking once more; its end is asked for."""

    submission: SubmissionState


@dataclass(frozen=True, kw_only=True)
class Poll:
    """Ask the scheduler, then wait for the next interval.

    Attributes:
        observe: submissions whose objects are asked for, in one query.
        find: submissions whose objects are looked for by token.
        stop: submissions whose objects are asked to end, if asked long enough ago.
        retire: submissions of older generations that have ended and that the scheduler may run again by itself; each
            is ended for good.
        needs: submissions whose objects' word nothing goes on without.
        wake_at: when something else becomes due; None if only an answer can change anything.
        why: what is being waited for, for people.
    """

    observe: tuple[SubmissionState, ...] = ()
    find: tuple[SubmissionState, ...] = ()
    stop: tuple[SubmissionState, ...] = ()
    retire: tuple[SubmissionState, ...] = ()
    needs: tuple[SubmissionState, ...] = ()
    wake_at: datetime | None = None
    why: str


@dataclass(frozen=True, kw_only=True)
class Append:
    """Append a fact that follows from the state alone, to the generation that it belongs to."""

    fact: Fact
    generation: int


@dataclass(frozen=True, kw_only=True)
class Finish:
    """End the generation; the final save is looked up first."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True, kw_only=True)
class Held:
    """A person must decide. What is left of older submissions is settled meanwhile."""

    hold: Hold
    settle: Poll | None


@dataclass(frozen=True, kw_only=True)
class Done:
    """Nothing is left to do."""

    finished: Finished


@dataclass(frozen=True, kw_only=True)
class Overtaken:
    """A newer generation took the place of the one that this process looks after; others look after that one."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class NotOpened:
    """The record is empty."""


Step = (
    Submit | Requeue | ForbidRestarts | Retire | GiveUp | Poll | Append | Finish | Held | Done | Overtaken | NotOpened
)
