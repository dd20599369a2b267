"""Events of a lineage in Prefect, so that notifications are a matter of one automation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from uuid import NAMESPACE_URL, uuid5

from prefect.events import emit_event

from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.facts import Finished, HoldLifted, HoldOpened
from prefect_dispatch.model.state import LineageState

RESOURCE = "prefect-dispatch.lineage."
MOST_TEXT = 500


class EventName(enum.StrEnum):
    """What Prefect is told of a lineage."""

    HOLD_OPENED = "prefect-dispatch.hold.opened"
    """A person is asked."""
    HOLD_LIFTED = "prefect-dispatch.hold.lifted"
    """It goes on, or ends, as somebody or something said."""
    EXECUTION_ENDED = "prefect-dispatch.execution.ended"
    """One execution is over, whatever follows."""
    FINISHED = "prefect-dispatch.finished"
    """The job is over."""


class Announcer:
    """Tells Prefect what became of a lineage. Told twice, even by two processes, it is one event.

    Args:
        lineage: the lineage's name.
        record: its record's id, since two stores may each have a lineage of one name.
    """

    def __init__(self, lineage: str, record: str) -> None:
        self._lineage = lineage
        self._record = record

    def held(self, hold: HoldOpened) -> None:
        """A hold was opened."""
        payload = {"hold": hold.hold, "why": hold.why, "cause": str(hold.cause or "")}
        self._tell(EventName.HOLD_OPENED, hold.hold, payload)

    def lifted(self, lifted: HoldLifted) -> None:
        """A hold was lifted."""
        payload = {"hold": lifted.hold, "by": str(lifted.lifted_by), "resolution": str(lifted.resolution)}
        self._tell(EventName.HOLD_LIFTED, lifted.hold, {**payload, "who": lifted.who, "note": lifted.note})

    def ended(self, state: LineageState) -> None:
        """The newest execution has ended."""
        submission = state.newest
        execution = submission.newest if submission is not None else None
        if submission is None or execution is None or execution.ended is None:
            return
        epoch, ended = str(submission.epoch(execution.restart)), execution.ended
        payload = {"epoch": epoch, "cause": str(ended.cause), "detail": ended.detail}
        self._tell(EventName.EXECUTION_ENDED, epoch, payload)

    def finished(self, state: LineageState, finished: Finished) -> None:
        """The job is over."""
        payload = {"outcome": str(finished.outcome), "detail": finished.detail}
        self._tell(EventName.FINISHED, f"{state.generation} {state.finished_at}", payload)

    def settled(self, state: LineageState) -> None:
        """What a person asked for has come about, without a run that would tell of it."""
        self.ended(state)
        if state.hold is not None:
            self.held(state.hold.opened)
        if state.finished is not None:
            self.finished(state, state.finished)

    def _tell(self, name: EventName, what: str, payload: Mapping[str, str]) -> None:
        emit_event(
            event=name.value,
            resource={"prefect.resource.id": f"{RESOURCE}{self._lineage}", "prefect.resource.name": self._lineage},
            payload={
                "lineage": self._lineage,
                "record": self._record,
                **{key: printable(text, MOST_TEXT) for key, text in payload.items()},
            },
            id=uuid5(NAMESPACE_URL, f"{name.value}/{self._record}/{what}"),
        )
