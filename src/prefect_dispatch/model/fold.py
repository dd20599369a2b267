"""Folding facts into a state. Pure, total and deterministic: every prefix of a record folds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import assert_never

from prefect_dispatch.format.epoch import MAX_SUBMISSION, Epoch
from prefect_dispatch.format.resume_choice import SCRATCH
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    CarriedBy,
    Cessation,
    Ended,
    Entry,
    Finished,
    HoldDue,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Observed,
    Opened,
    Reopened,
    Requeueing,
    Resolution,
    RestartsForbidden,
    Retired,
    Retiring,
    StopRequested,
    SubmitRefused,
    Submitted,
    Submitting,
    Superseded,
)
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import Execution, Hold, Landing, LineageState, Parent, SubmissionState

FOLD_VERSION = 5
"""Raised when the same facts would fold to another state, so that older snapshots are not taken up."""


def fold(entries: Iterable[Entry], state: LineageState | None = None) -> LineageState:
    """Fold entries, in order, on top of a state (by default that of an empty record)."""
    folded = state or LineageState()
    for entry in entries:
        folded = apply(folded, entry)
    return folded


def apply(state: LineageState, entry: Entry) -> LineageState:
    """The state after one more entry. What is late or tells nothing new changes seq, at and latest_at alone."""
    changed = _apply(state, entry)
    latest = max(changed.latest_at, entry.at) if changed.latest_at is not None else entry.at
    return changed.model_copy(update={"seq": entry.seq, "at": entry.at, "latest_at": latest})


def _apply(state: LineageState, entry: Entry) -> LineageState:
    fact, at = entry.fact, entry.at
    if state.opened is None and not isinstance(fact, Opened | CarriedBy):
        return state
    if isinstance(fact, HoldOpened | Cessation | HoldDue | HoldLifted | StopRequested | Finished | Reopened):
        return _decision(state, fact, at) if entry.generation == state.generation else state
    match fact:
        case Opened():
            return _open(state, entry.generation, fact, at)
        case CarriedBy():
            # Who carried an older generation and did not know yet that it is over carries nothing.
            late = state.opened is not None and entry.generation < state.generation
            return state if late else state.model_copy(update={"carried_by": fact.flow_run})
        case Submitting():
            return _submitting(state, entry.generation, fact, at)
        case Submitted() | SubmitRefused() | Abandoned() | RestartsForbidden() | Retiring() | Retired() | Requeueing():
            return _submission_fact(state, entry.generation, fact, at)
        case Observed():
            return _observed(state, entry.generation, fact, at)
        case Ended():
            return _ended(state, entry.generation, fact, at)
        case Superseded():
            return state
    assert_never(fact)


def _decision(
    state: LineageState,
    fact: HoldOpened | Cessation | HoldDue | HoldLifted | StopRequested | Finished | Reopened,
    at: datetime,
) -> LineageState:
    """What was decided about the generation as a whole. Nothing but a reopening comes after its end."""
    if isinstance(fact, Reopened):
        return _reopened(state, fact)
    if state.finished is not None:
        return state
    match fact:
        case HoldOpened():
            # A hold is where a suspension leads to, but no hold takes a stop back.
            stop = state.stop if state.stop is not None and state.stop.intent == "abandon" else None
            update = {"hold": Hold(opened=fact, at=at), "lifted": None, "lifted_hold": None, "stop": stop}
            return state.model_copy(update={**update, "reopened": None})
        case Cessation():
            return _answered(state, fact, at)
        case HoldDue():
            return _of_hold(state, fact.hold, due_at=at)
        case HoldLifted():
            return _lifted(state, fact)
        case StopRequested():
            return state.model_copy(update={"stop": fact})
        case Finished():
            return state.model_copy(update={"finished": fact, "finished_at": at, "hold": None, "stop": None})
    assert_never(fact)


def _open(state: LineageState, generation: int, fact: Opened, at: datetime) -> LineageState:
    if state.opened is not None and generation <= state.generation:
        return state
    return LineageState(
        generation=generation,
        opened=fact,
        opened_at=at,
        # Whoever carried the old generation carries the new one only once they say so, as a run that opens it does.
        carried_by=fact.request or (state.carried_by if state.opened is None else None),
        parent=_parent(state),
        obligations=_obligations(state),
        base=fact.base,
        floor=fact.floor,
    )


def _parent(state: LineageState) -> Parent | None:
    """The generation that a new one takes the place of."""
    if state.opened is None:
        return None
    unanswered = not state.submissions and state.parent is not None and state.parent.shared_checkpoint
    return Parent(
        generation=state.generation,
        outcome=state.finished.outcome if state.finished is not None else None,
        # A question about the parent's own parent that nobody has answered is asked on.
        shared_checkpoint=state.opened.spec.shared_checkpoint or unanswered,
    )


def _obligations(state: LineageState) -> tuple[SubmissionState, ...]:
    """What a new generation owes to the older ones: what may run is to be ended, and what may turn up is looked for."""
    made = tuple(each for each in (*state.obligations, *state.submissions) if each.landing is not Landing.REFUSED)
    return tuple(each for each in made if each.may_run or each.landing is Landing.ABANDONED or each is made[-1])


def _submitting(state: LineageState, generation: int, fact: Submitting, at: datetime) -> LineageState:
    newest = state.newest
    if generation != state.generation or (newest is not None and fact.n <= newest.n):
        return state
    submission = SubmissionState(
        generation=generation,
        n=fact.n,
        token=fact.token,
        writer=fact.writer,
        at=at,
        give_up_at=fact.give_up_at,
        base=fact.base,
        floor=fact.floor,
        restarts_allowed=fact.restarts_allowed,
    )
    return state.model_copy(
        update={
            "submissions": (*state.submissions, submission),
            "base": fact.base,
            "floor": fact.floor,
            "lifted": None,
            "lifted_hold": None,
            "not_before": None,
            "reopened": None,
        }
    )


def _submission_fact(
    state: LineageState,
    generation: int,
    fact: Submitted | SubmitRefused | Abandoned | RestartsForbidden | Retiring | Retired | Requeueing,
    at: datetime,
) -> LineageState:
    submission = state.submission(generation, fact.n)
    if submission is None:
        return state
    match fact:
        case Submitted():
            if submission.object is not None:
                return state
            return _replace(state, submission.model_copy(update={"object": fact.object, "landing": Landing.LANDED}))
        case SubmitRefused() | Abandoned():
            if submission.landing is not Landing.INTENDED:
                return state
            refused = isinstance(fact, SubmitRefused)
            update = {
                "landing": Landing.REFUSED if refused else Landing.ABANDONED,
                "detail": fact.detail if isinstance(fact, SubmitRefused) else "it never reached the scheduler",
                "settled_at": at,
            }
            return _count(_replace(state, submission.model_copy(update=update)), submission, Cause.LAUNCH_FAILED, at)
        case RestartsForbidden():
            return _replace(state, submission.model_copy(update={"restarts_forbidden": True}))
        case Retiring():
            known = submission.retiring
            retiring = fact.restart if known is None else min(known, fact.restart)
            return _replace(state, submission.model_copy(update={"retiring": retiring}))
        case Retired():
            return _replace(state, submission.model_copy(update={"restarts_forbidden": True, "retired": True}))
        case Requeueing():
            update = {"requeueing": fact.restart, "requeueing_at": at}
            return _replace(state, submission.model_copy(update=update)).model_copy(
                update={"lifted": None, "lifted_hold": None}
            )
    assert_never(fact)


def _observed(state: LineageState, generation: int, fact: Observed, at: datetime) -> LineageState:
    submission = state.submission(generation, fact.n)
    if submission is None or submission.landing is not Landing.LANDED:
        return state
    newest = submission.newest
    if newest is not None and (fact.restart < newest.restart or (fact.restart == newest.restart and newest.ended)):
        return state
    before = newest if newest is not None and newest.restart == fact.restart else None
    same = before is not None and before.state is fact.state
    running = fact.state in (ObjectState.RUNNING, ObjectState.ENDING)
    execution = Execution(
        restart=fact.restart,
        state=fact.state,
        since=before.since if before is not None and same else at,
        seen_running=running or (before is not None and before.seen_running),
        started_at=fact.started_at or (before.started_at if before else None) or (at if running else None),
        nodes=fact.nodes or (before.nodes if before else ()),
    )
    return _replace(state, _with_execution(submission, execution))


def _ended(state: LineageState, generation: int, fact: Ended, at: datetime) -> LineageState:
    submission = state.submission(generation, fact.n)
    if submission is None or submission.landing is not Landing.LANDED:
        return state
    before = next((known for known in submission.executions if known.restart == fact.restart), None)
    if before is not None and before.ended is not None:
        return state
    if before is None and submission.newest is not None and fact.restart < submission.newest.restart:
        return state
    execution = Execution(
        restart=fact.restart,
        state=ObjectState.ENDED,
        since=at,
        seen_running=before is not None and before.seen_running,
        started_at=before.started_at if before else None,
        nodes=fact.nodes or (before.nodes if before else ()),
        ended=fact,
        ended_at=at,
    )
    ended = _with_execution(submission, execution)
    counted = _replace(state, ended)
    if ended.is_our_stop(execution):
        return counted
    if ended.newest is execution:
        counted = _run_again_is_done(counted, submission, fact.cause)
    charged = _count(counted, submission, fact.cause, at)
    return counted if charged is counted else _progress(charged, fact)


def _run_again_is_done(state: LineageState, submission: SubmissionState, cause: Cause) -> LineageState:
    """A person said to run it again, and it turned out to run: its end is no longer the one that was held for."""
    current = state.newest is not None and (state.newest.generation, state.newest.n) == (
        submission.generation,
        submission.n,
    )
    if not current or state.lifted is None or state.lifted.resolution is not Resolution.RUN_AGAIN:
        return state
    if state.lifted_hold is not None and state.lifted_hold.state_unknown and cause is Cause.VANISHED:
        # It was given up by that very word, which is to be carried out yet.
        return state
    return state.model_copy(update={"lifted": None, "lifted_hold": None})


def _count(state: LineageState, submission: SubmissionState, cause: Cause, at: datetime) -> LineageState:
    """Charge an end to its cause's budget. Ends of stale submissions are noted, no more."""
    newest = state.newest
    if newest is None or (newest.generation, newest.n) != (submission.generation, submission.n) or not state.opened:
        return state
    before = state.spent.get(cause, 0)
    rule = state.opened.plan.recovery(cause)
    delay = rule.delay_after(before) if rule.recovers else timedelta(0)
    not_before = at + delay if delay else None
    charged = {**state.spent, cause: before + 1}
    return state.model_copy(update={"spent": charged, "not_before": not_before, "delay": delay})


def _progress(state: LineageState, fact: Ended) -> LineageState:
    """Count executions in a row without a new publication. A save that was published late counts for the next one."""
    if state.opened is not None and state.opened.plan.count_every_execution:
        return state.model_copy(update={"fruitless": state.fruitless + 1})
    if fact.published is None:
        return state
    fruitless = 0 if fact.published > state.published else state.fruitless + 1
    return state.model_copy(update={"fruitless": fruitless, "published": max(fact.published, state.published)})


def _reopened(state: LineageState, fact: Reopened) -> LineageState:
    """Nothing of how it ended holds any more, and nothing of what led there: a person is asked anew."""
    if state.finished is None:
        return state
    gone = dict.fromkeys(("finished", "finished_at", "hold", "stop", "lifted", "lifted_hold"))
    return state.model_copy(update={**gone, "reopened": fact})


def _answered(state: LineageState, fact: Cessation, at: datetime) -> LineageState:
    """The site's answer, if it is about the object that is held for."""
    if state.hold is None or state.hold.opened.object != fact.object or state.hold.ceased:
        return state
    return _of_hold(state, fact.hold, cessation=fact, answered_at=at)


def _of_hold(state: LineageState, hold: str, **update: object) -> LineageState:
    if state.hold is None or state.hold.opened.hold != hold:
        return state
    return state.model_copy(update={"hold": state.hold.model_copy(update=update)})


def _lifted(state: LineageState, fact: HoldLifted) -> LineageState:
    hold = _lifts(state, fact)
    if hold is None:
        return state
    stop, fruitless = state.stop, state.fruitless
    if fact.resolution is Resolution.STOP:
        stop = StopRequested(intent="abandon", who=fact.who, note=fact.note)
    elif fact.lifted_by is LiftedBy.PERSON:
        # The later word of a person wins over an earlier one.
        stop = None
    if fact.lifted_by is LiftedBy.PERSON:
        fruitless = 0
    update: dict[str, object] = {
        "hold": None,
        "lifted": fact,
        "lifted_hold": hold,
        "fruitless": fruitless,
        "stop": stop,
    }
    if fact.resolution in (Resolution.CONTINUE_FROM, Resolution.FROM_SCRATCH):
        # From here on, whatever else is asked before the next submission: a choice is taken back by a choice alone.
        n = state.newest.n + 1 if state.newest is not None else 1
        update["base"] = fact.base or SCRATCH
        update["floor"] = Epoch(state.generation, min(n, MAX_SUBMISSION), 0).number
    return state.model_copy(update=update)


def _lifts(state: LineageState, fact: HoldLifted) -> HoldOpened | None:
    """The hold that a word lifts: the open one, or the one that no person has answered yet."""
    person = fact.lifted_by is LiftedBy.PERSON
    if (fact.lifted_by is LiftedBy.EXPIRY) is not (fact.resolution is Resolution.EXPIRE):
        return None
    hold, lifted = state.hold, state.lifted
    if hold is None:
        unanswered = lifted is not None and lifted.lifted_by is not LiftedBy.PERSON and lifted.hold == fact.hold
        return state.lifted_hold if person and unanswered else None
    allowed = {
        LiftedBy.PERSON: True,
        LiftedBy.SIGNAL: hold.opened.signal_may_lift and hold.ceased,
        LiftedBy.EXPIRY: hold.opened.until is not None,
    }
    return hold.opened if hold.opened.hold == fact.hold and allowed[fact.lifted_by] else None


def _with_execution(submission: SubmissionState, execution: Execution) -> SubmissionState:
    others = tuple(known for known in submission.executions if known.restart != execution.restart)
    ordered = tuple(sorted((*others, execution), key=lambda known: known.restart))
    return submission.model_copy(update={"executions": ordered})


def _replace(state: LineageState, submission: SubmissionState) -> LineageState:
    def put(known: tuple[SubmissionState, ...]) -> tuple[SubmissionState, ...]:
        key = (submission.generation, submission.n)
        return tuple(submission if (each.generation, each.n) == key else each for each in known)

    if submission.generation == state.generation:
        return state.model_copy(update={"submissions": put(state.submissions)})
    return state.model_copy(update={"obligations": put(state.obligations)})
