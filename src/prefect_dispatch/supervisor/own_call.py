"""A call of a supervisor's own that may start something, until it is known that whoever must know it does."""

from __future__ import annotations

from dataclasses import dataclass

from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.model.state import LineageState, SubmissionState


@dataclass
class OwnCall:
    """What a submit or a requeue may have started.

    Whoever stands still between the last look at the clock and the call makes it after everybody else has given it up:
    the lineage may be over by then, and nobody would look for the object.

    Attributes:
        submission: what was submitted or run again.
        object: what the scheduler has of it; None while that is not known.
        until: when it is no longer looked for, by the process's own monotonic clock.
    """

    submission: SubmissionState
    object: ObjectRef | None
    until: float = 0.0


def is_unwanted(state: LineageState, generation: int, n: int) -> bool:
    """Whether an object of a submission must not run.

    One that was given up and is still the current one of an open lineage is taken up again, or ended by a hold.
    """
    newest = state.newest
    if state.finished is not None or newest is None or (newest.generation, newest.n) != (generation, n):
        return True
    return newest.retiring is not None or (state.stop is not None and state.stop.intent == "abandon")
