"""Checks after each advance: what a supervisor believes, and what it must have done before it waits."""

from __future__ import annotations

from dataclasses import dataclass

from prefect_dispatch.model.causes import SCHEDULER_RESTARTS
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import Landing
from prefect_dispatch.model.steps import Done, Finish, Held, Poll
from prefect_dispatch.supervisor.advance import Advanced
from prefect_dispatch.testing.simulator.recount import Recount
from prefect_dispatch.testing.simulator.truth import Truth


@dataclass(frozen=True)
class Took:
    """An advance that has returned.

    Attributes:
        truth: what really happened.
        advanced: what it came to.
        actor: whose it was.
        began: when it was called, in seconds since the beginning.
    """

    truth: Truth
    advanced: Advanced
    actor: str
    began: float

    @property
    def rests(self) -> bool:
        """Whether the supervisor asked all that it wanted, got all answers, and sees nothing to do but wait."""
        waits = isinstance(self.advanced.step, Poll | Held)
        return waits and not self.advanced.moved and not self.advanced.trouble


def g6_all_supervisors_fold_alike(took: Took) -> str | None:
    """What a supervisor believes is what the record up to there folds to, snapshots or not."""
    state = took.advanced.state
    if state.seq >= len(took.truth.states):
        return f"it believes in {state.seq} facts, and there are {len(took.truth.states) - 1}"
    if took.truth.agreed.get(took.actor) == state.seq:
        return None
    took.truth.agreed[took.actor] = state.seq
    same = took.truth.states[state.seq] == state
    return None if same else f"its fold of {state.seq} facts differs from the record's"


def g5_what_turns_up_is_found(took: Took) -> str | None:
    """Who has nothing to do has looked for every submission without a known object."""
    if not took.rests:
        return None
    for submission in (*took.advanced.state.obligations, *took.advanced.state.submissions):
        landed_at = took.truth.landed.get(submission.token)
        lost = submission.landing in (Landing.INTENDED, Landing.ABANDONED)
        ambiguous = took.truth.ambiguous.get(submission.token, -1.0) >= took.began
        if not lost or landed_at is None or landed_at >= took.began or ambiguous:
            continue
        found = took.truth.scheduler.objects(submission.token)[0]
        if not found.purged:
            return f"{found.ref} of submission {submission.n} has been there since {landed_at:.0f} s, and is not found"
    return None


def g13_what_is_to_end_is_asked_to(took: Took) -> str | None:
    """Who has nothing to do has asked for the end of every object that is stale or of a job that is to stop."""
    if not took.rests:
        return None
    state = took.advanced.state
    unwanted = list(state.stale)
    if state.stop is not None and state.newest is not None and (state.hold is None or state.stop.intent == "abandon"):
        unwanted.append(state.newest)
    for submission in unwanted:
        if submission.object is None or submission.object in took.truth.stopped:
            continue
        found = took.truth.object(submission.object)
        if found is not None and not found.is_over and submission.live:
            return f"{found.ref} of submission {submission.n} is {found.state}, and nobody asked it to stop"
    return None


def g5_the_last_restart_is_not_the_schedulers(took: Took) -> str | None:
    """Who has nothing to do has turned restarts off where the next one could be one too many."""
    state, truth = took.advanced.state, took.truth
    submission = state.newest
    if not took.rests or state.opened is None or state.hold is not None or state.stop is not None:
        return None
    if submission is None or submission.object is None or not submission.live:
        return None
    found = truth.object(submission.object)
    if found is None or found.is_over or not found.restarts_allowed or not truth.scheduler.shape.restarts_by_itself:
        return None
    counted = Recount.of(truth.entries[: state.seq])
    limit = state.opened.spec.recovery.no_progress
    for cause in sorted(SCHEDULER_RESTARTS):
        if counted.spent[cause] >= state.opened.plan.rule(cause).budget - 1:
            return f"{found.ref} may run again by itself after {counted.spent[cause]} ends by {cause}"
    if limit is not None and counted.fruitless >= limit - 1:
        return f"{found.ref} may run again by itself after {counted.fruitless} executions without a save"
    return None


def g7_nobody_holds_what_the_scheduler_runs(took: Took) -> str | None:
    """An open hold has no execution behind its back that the scheduler may run again."""
    state, truth = took.advanced.state, took.truth
    if state.hold is None or state.newest is None:
        return None
    if state.hold.opened.token is not None or state.hold.opened.state_unknown:
        return None
    submission = state.newest
    found = truth.object(submission.object) if submission.object is not None else None
    if found is None or found.purged or found.ref in truth.stopped:
        return None
    if found.state in (ObjectState.QUEUED, ObjectState.RUNNING) and took.rests:
        return f"the lineage is held and {found.ref} is {found.state}"
    return None


def g12_a_finished_lineage_is_out_of_the_index(took: Took) -> str | None:
    """Whoever finished it, or looked at it after that, has taken it out."""
    state, step = took.advanced.state, took.advanced.step
    if state.finished is None or took.advanced.trouble or not took.truth.entries:
        return None
    own = took.truth.writers.get(took.truth.entries[-1].by) == took.actor
    looked = isinstance(step, Done) or (isinstance(step, Finish) and took.advanced.moved and own)
    if not looked or not took.truth.is_in_index():
        return None
    return "the lineage is finished, and the index of open ones still has it"


ON_ADVANCE = (
    g6_all_supervisors_fold_alike,
    g5_what_turns_up_is_found,
    g13_what_is_to_end_is_asked_to,
    g5_the_last_restart_is_not_the_schedulers,
    g7_nobody_holds_what_the_scheduler_runs,
    g12_a_finished_lineage_is_out_of_the_index,
)
