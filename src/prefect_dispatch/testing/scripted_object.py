"""One object of the scripted scheduler: a frozen value, and the ways that it can change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import EndedRestart, Exit, ObjectRef, ObjectState, Observation


@dataclass(frozen=True, kw_only=True)
class ScriptedObject:
    """What the scripted scheduler knows of an object.

    Attributes:
        ref: the object.
        restarts_allowed: whether the scheduler may restart it by itself.
        state: the state of the restart that is current.
        restart: the number of that restart.
        ended: the ends that accounting knows, ascending.
        nodes: where the current restart runs.
        started_at: when it began to run.
    """

    ref: ObjectRef
    restarts_allowed: bool
    state: ObjectState = ObjectState.QUEUED
    restart: int = 0
    ended: tuple[EndedRestart, ...] = ()
    nodes: tuple[str, ...] = ()
    started_at: datetime | None = None

    @property
    def attempt(self) -> str:
        """The attempt of the current restart."""
        return attempt_of(self.ref.token, self.restart)

    @property
    def is_over(self) -> bool:
        """Whether the current restart has ended."""
        return self.state is ObjectState.ENDED

    def observation(self) -> Observation:
        """What the scheduler says of it."""
        return Observation(
            state=self.state,
            restart=self.restart,
            ended=self.ended,
            nodes=self.nodes,
            started_at=self.started_at,
            evidence=f"scripted: {self.state}",
        )

    def running(self, at: datetime, node: str) -> Self:
        """It began to run."""
        self._expect(ObjectState.QUEUED)
        return replace(self, state=ObjectState.RUNNING, nodes=(node,), started_at=at)

    def ending(self) -> Self:
        """The scheduler began to end it."""
        self._expect(ObjectState.QUEUED, ObjectState.RUNNING)
        return replace(self, state=ObjectState.ENDING)

    def over(self, at: datetime, cause: Cause | None, exit: Exit | None, evidence: str) -> Self:
        """The current restart ended."""
        self._expect(ObjectState.QUEUED, ObjectState.RUNNING, ObjectState.ENDING)
        end = EndedRestart(
            restart=self.restart, cause=cause, exit=exit, nodes=self.nodes, ended_at=at, evidence=evidence
        )
        return replace(self, state=ObjectState.ENDED, ended=(*self.ended, end))

    def again(self) -> Self:
        """It waits for its next restart."""
        self._expect(ObjectState.ENDED)
        return replace(self, state=ObjectState.QUEUED, restart=self.restart + 1, nodes=(), started_at=None)

    def with_restarts(self, allowed: bool) -> Self:
        """Whether the scheduler may restart it was set."""
        return replace(self, restarts_allowed=allowed)

    def without_last_end(self) -> Self:
        """Accounting lost the last end; for a restart that nobody observed."""
        return replace(self, ended=self.ended[:-1])

    def _expect(self, *states: ObjectState) -> None:
        if self.state not in states:
            expected = " or ".join(states)
            raise ValueError(f"object {self.ref} is {self.state}; the script needs it {expected}")
