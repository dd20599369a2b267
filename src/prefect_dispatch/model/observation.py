"""What a scheduler says of an object, in this project's words."""

from __future__ import annotations

import enum

from pydantic import AwareDatetime, BaseModel, ConfigDict

from prefect_dispatch.model.causes import Cause


class ObjectRef(BaseModel):
    """A scheduler's object.

    Attributes:
        scheduler: the kind of scheduler, such as ``local`` or ``slurm``.
        id: the scheduler's own name of the object.
        token: the submission's token that it carries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str
    id: str
    token: str

    def __str__(self) -> str:
        return f"{self.scheduler}:{self.id}"


class ObjectState(enum.StrEnum):
    """The states of an object. Every word of a scheduler is mapped to one; a word nobody knows is ``unknown``."""

    QUEUED = "queued"
    """It waits for its turn; no process of this restart was started."""
    RUNNING = "running"
    """The scheduler says that it runs."""
    ENDING = "ending"
    """The scheduler is ending it; its restart count may already be the next run's."""
    ENDED = "ended"
    """The scheduler says that it is over. Its processes may live on."""
    UNKNOWN = "unknown"
    """The scheduler cannot tell. Never success and never gone."""


class Exit(BaseModel):
    """How a process ended: by its own exit code, or by a signal.

    Attributes:
        code: its exit code, 0 to 255; None if a signal ended it.
        signal: the signal's number; None if it exited.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        return f"exit {self.code}" if self.signal is None else f"signal {self.signal}"


class EndedRestart(BaseModel):
    """The end of one restart of an object, as a scheduler's accounting has it.

    Attributes:
        restart: R.
        cause: what the scheduler says ended it; None where it leaves that to the exit.
        exit: how the batch process ended, where known.
        nodes: where it ran.
        ended_at: when it ended, by the scheduler's clock.
        evidence: the scheduler's own words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    restart: int
    cause: Cause | None = None
    exit: Exit | None = None
    nodes: tuple[str, ...] = ()
    ended_at: AwareDatetime | None = None
    evidence: str = ""


class Observation(BaseModel):
    """One answer of a scheduler about one object.

    Attributes:
        state: the state of the restart that is current.
        restart: the scheduler's restart count of that run, 0 to 999,999.
        ended: the ends of this and earlier restarts that the scheduler still knows, ascending; the current one's is
            there exactly when ``state`` is ``ended``.
        nodes: where the current restart runs.
        started_at: when the current restart began to run, by the scheduler's clock.
        evidence: the scheduler's own words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: ObjectState
    restart: int = 0
    ended: tuple[EndedRestart, ...] = ()
    nodes: tuple[str, ...] = ()
    started_at: AwareDatetime | None = None
    evidence: str = ""
