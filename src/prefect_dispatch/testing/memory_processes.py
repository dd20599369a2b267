"""The processes of one execution in the in-memory cluster, which may outlive what the scheduler says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.model.observation import ObjectRef


@dataclass(frozen=True, kw_only=True)
class Processes:
    """When and where the processes of one execution lived.

    Attributes:
        attempt: the execution's.
        object: the object that it is a run of.
        node: where they run.
        began_at: when they began.
        noticed_at: when they were asked to end by themselves; None for never.
        ended_at: when they ended or, once it is fixed, will end; None while nothing ends them.
    """

    attempt: str
    object: ObjectRef
    node: str
    began_at: datetime
    noticed_at: datetime | None = None
    ended_at: datetime | None = None

    def live(self, at: datetime) -> bool:
        """Whether they live at this time."""
        return self.ended_at is None or at < self.ended_at
