"""One object of the in-memory cluster: a frozen value, and the ways that it can change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import EndedRestart, Exit, ObjectRef, ObjectState, Observation


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What is to be said of a restart once it is over.

    Attributes:
        cause: what the scheduler will say ended it; None leaves it to the exit.
        exit: how the batch process ended, once it has.
        evidence: the scheduler's words.
        again: whether the scheduler runs the object again afterwards.
        stopped: whether a stop came meanwhile, so that the next restart ends before it begins.
    """

    cause: Cause | None = None
    exit: Exit | None = None
    evidence: str = ""
    again: bool = False
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryObject:
    """What the in-memory cluster knows of an object.

    Attributes:
        ref: the object.
        restarts_allowed: whether the scheduler may restart it by itself.
        state: the state of the restart that is current.
        restart: the number of that restart.
        ended: the ends that accounting knows, ascending.
        nodes: where the current restart runs.
        started_at: when it began to run.
        eligible_at: before when it may not start, if the scheduler keeps it waiting.
        end_to_come: what is to be said of the current restart while it is ending.
        purged: whether the scheduler has forgotten it.
    """

    ref: ObjectRef
    restarts_allowed: bool
    state: ObjectState = ObjectState.QUEUED
    restart: int = 0
    ended: tuple[EndedRestart, ...] = ()
    nodes: tuple[str, ...] = ()
    started_at: datetime | None = None
    eligible_at: datetime | None = None
    end_to_come: Ending | None = None
    purged: bool = False

    @property
    def attempt(self) -> str:
        """The attempt of the current restart."""
        return attempt_of(self.ref.token, self.restart)

    @property
    def is_over(self) -> bool:
        """Whether the current restart has ended."""
        return self.state is ObjectState.ENDED

    def observation(self, *, count_rises: bool, earlier_ends: bool) -> Observation:
        """What the scheduler says of it.

        Args:
            count_rises: whether the count is the next restart's already while this one is ending.
            earlier_ends: whether the ends of earlier restarts are told.
        """
        next_shown = count_rises and self.end_to_come is not None and self.end_to_come.again
        return Observation(
            state=self.state,
            restart=self.restart + 1 if next_shown else self.restart,
            ended=tuple(end for end in self.ended if earlier_ends or end.restart == self.restart),
            nodes=self.nodes,
            started_at=self.started_at,
            evidence=f"{self.ref.scheduler}: {self.state}",
        )

    def running(self, at: datetime, node: str) -> Self:
        """It began to run."""
        self._expect(ObjectState.QUEUED)
        return replace(self, state=ObjectState.RUNNING, nodes=(node,), started_at=at, eligible_at=None)

    def ending(self, to_come: Ending) -> Self:
        """The scheduler began to end it, or knows more of its end."""
        self._expect(ObjectState.QUEUED, ObjectState.RUNNING, ObjectState.ENDING)
        return replace(self, state=ObjectState.ENDING, end_to_come=to_come)

    def over(self, at: datetime, end: Ending) -> Self:
        """The current restart ended."""
        self._expect(ObjectState.QUEUED, ObjectState.RUNNING, ObjectState.ENDING)
        told = EndedRestart(
            restart=self.restart,
            cause=end.cause,
            exit=end.exit,
            nodes=self.nodes,
            ended_at=at,
            evidence=end.evidence,
        )
        return replace(self, state=ObjectState.ENDED, ended=(*self.ended, told), end_to_come=None)

    def again(self, eligible_at: datetime | None = None) -> Self:
        """It waits for its next restart."""
        self._expect(ObjectState.ENDED)
        return replace(
            self,
            state=ObjectState.QUEUED,
            restart=self.restart + 1,
            nodes=(),
            started_at=None,
            eligible_at=eligible_at,
        )

    def with_restarts(self, allowed: bool) -> Self:
        """Whether the scheduler may restart it was set."""
        return replace(self, restarts_allowed=allowed)

    def without_last_end(self) -> Self:
        """Accounting lost the last end; for a restart that nobody observed."""
        return replace(self, ended=self.ended[:-1])

    def forgotten(self) -> Self:
        """The scheduler purged it."""
        return replace(self, purged=True)

    def _expect(self, *states: ObjectState) -> None:
        if self.state not in states:
            expected = " or ".join(states)
            raise ValueError(f"object {self.ref} is {self.state}; the script needs it {expected}")
