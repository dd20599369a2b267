"""What a generation owes to the one whose place it took: to end what runs, and to ask where a checkpoint is shared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from prefect_dispatch.format.identity import SCHEMA
from prefect_dispatch.model.causes import Action
from prefect_dispatch.model.facts import HoldOpened, Opened
from prefect_dispatch.model.holds import until_of
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
from prefect_dispatch.model.unaccounted import is_about_older


def owed(state: LineageState) -> tuple[SubmissionState, ...]:
    """The submissions of older generations of which something may run, now or later."""
    return tuple(each for each in state.obligations if each.may_run)


def to_retire(state: LineageState) -> tuple[SubmissionState, ...]:
    """Those of them that have ended and that the scheduler may run again by itself."""
    return tuple(each for each in state.obligations if each.may_restart and not each.live)


def asks_first(state: LineageState, opened: Opened) -> bool:
    """Whether a generation's first submission needs a word before it, since an older one may write to the same place.

    Where nothing was ever handed to the scheduler there is no other writer.
    """
    parent = state.parent
    if parent is None or not state.obligations:
        return False
    return opened.spec.shared_checkpoint or parent.shared_checkpoint


def is_answered(state: LineageState) -> bool:
    """Whether that word was given. That one object nobody could account for is gone says nothing of any other."""
    return state.lifted is not None and (not is_about_older(state) or len(state.obligations) == 1)


def superseding_hold(state: LineageState, opened: Opened, now: datetime) -> HoldOpened:
    """The hold before the first submission of such a generation, once nothing older is known to run.

    A signal may lift it where one object alone is what can have written; it knows nothing of several.
    """
    last = state.obligations[-1]
    of_one = len(state.obligations) == 1 and last.landing is Landing.LANDED and last.newest is not None
    generation = state.parent.generation if state.parent is not None else 0
    why = (
        f"generation {state.generation} takes the place of generation {generation}, and the checkpoint is shared: "
        "are the processes of the old execution gone?"
    )
    return HoldOpened(
        hold=f"h{state.seq + 1}",
        why=why,
        stands_for=Action.RESUBMIT,
        restart=last.newest.restart if last.newest is not None else None,
        object=last.object,
        until=until_of(state, opened, now),
        signal_may_lift=of_one,
    )


def schema_doubt(opened: Opened, spec: JobSpec, identity: Mapping[str, str]) -> str:
    """Why nobody can take it for granted that a job reads the checkpoints of the present generation; empty if it does.

    Args:
        opened: what the present generation was opened with.
        spec: the job that is to take its place.
        identity: the digests of that job's identity, as far as they can be told here.
    """
    if SCHEMA not in opened.spec.identity and SCHEMA not in spec.identity:
        return ""
    before, after = opened.identity.get(SCHEMA), identity.get(SCHEMA)
    told = (SCHEMA not in opened.spec.identity or before) and (SCHEMA not in spec.identity or after)
    if not told:
        return f"whether {SCHEMA} has changed cannot be told here"
    return f"{SCHEMA} has changed" if before != after else ""
