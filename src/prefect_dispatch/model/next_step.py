"""What follows from a state: the one place where rules, budgets and choices turn into a step. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.format.epoch import MAX_RESTART, MAX_SUBMISSION
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import SCHEDULER_RESTARTS, Action, Cause
from prefect_dispatch.model.deadline import leaves_no_time
from prefect_dispatch.model.end import End, end_of
from prefect_dispatch.model.facts import (
    Abandoned,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Opened,
    Outcome,
    Reopened,
    Resolution,
    Retiring,
    StopRequested,
)
from prefect_dispatch.model.holds import lift_without_a_person, until_of
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import Hold, Landing, LineageState, SubmissionState
from prefect_dispatch.model.steps import (
    Append,
    Done,
    Finish,
    ForbidRestarts,
    GiveUp,
    Held,
    NotOpened,
    Poll,
    Requeue,
    Retire,
    Step,
    Submit,
)
from prefect_dispatch.model.superseding import asks_first, is_answered, owed, superseding_hold, to_retire
from prefect_dispatch.model.unaccounted import is_about_older, name_of


@dataclass(frozen=True)
class _Situation:
    """A lineage that is open, at a moment: what every rule looks at."""

    state: LineageState
    opened: Opened
    now: datetime
    capabilities: Capabilities


def next_step(state: LineageState, now: datetime, capabilities: Capabilities) -> Step:
    """Say what to do next for a lineage.

    Args:
        state: what its record folds to.
        now: the supervisor's clock.
        capabilities: the scheduler's bounds.
    """
    if state.opened is None:
        return NotOpened()
    if state.finished is not None:
        return Done(finished=state.finished)
    here = _Situation(state, state.opened, now, capabilities)
    if state.hold is not None and not _stop_goes_on(state, state.hold):
        return _held(here, state.hold)
    lost = _given_up(state)
    if lost is not None:
        return Append(fact=Abandoned(n=lost.n), generation=lost.generation)
    unknown = _given_up_unknown(state)
    if unknown is not None:
        return GiveUp(submission=unknown)
    if state.stop is not None:
        return _stopping(here, state.stop)
    if state.lifted is not None and state.lifted.lifted_by is LiftedBy.EXPIRY:
        return _expired(here)
    if state.reopened is not None:
        return _hold_reopened(here, state.reopened)
    submission = state.newest
    if submission is None:
        return _first(here)
    end = end_of(submission)
    if end is None:
        return _carry_on(here, submission)
    return _after_end(here, submission, end)


def _stop_goes_on(state: LineageState, hold: Hold) -> bool:
    """A stop needs no hold to be lifted, but for one over something that only a person can account for."""
    if state.stop is None or state.stop.intent != "abandon":
        return False
    unknown = _unknown_of(state, hold.opened)
    if unknown is not None and unknown.live:
        return False
    return not any(each.token == hold.opened.token for each in _intended(state))


def _intended(state: LineageState) -> Iterator[SubmissionState]:
    known = (*state.obligations, *state.submissions)
    return (each for each in known if each.landing is Landing.INTENDED)


def _given_up(state: LineageState) -> SubmissionState | None:
    """The submission that nobody could account for and a person has now given up.

    Not where the person's word is to stop: then it is looked for as long as it may be on its way, and stopped.
    """
    if state.stop is not None and state.stop.intent == "abandon":
        return None
    token = state.lifted_hold.token if state.lifted_hold is not None else None
    return next((each for each in _intended(state) if each.token == token), None)


def _unknown_of(state: LineageState, hold: HoldOpened) -> SubmissionState | None:
    """The submission that a hold over an unknown state is about, while nothing more was learned of it."""
    if not hold.state_unknown:
        return None
    for submission in (*state.obligations, *state.submissions):
        newest = submission.newest
        if submission.object != hold.object or newest is None or newest.restart != hold.restart:
            continue
        if submission.may_restart and newest.ended is not None:
            return submission
        if submission.live and newest.state is ObjectState.UNKNOWN:
            return submission
    return None


def _given_up_unknown(state: LineageState) -> SubmissionState | None:
    """The submission whose object's state is unknown and which a person has now given up."""
    return _unknown_of(state, state.lifted_hold) if state.lifted_hold is not None else None


def _first(here: _Situation) -> Step:
    """The first submission of a generation. What it superseded is waited for only where the checkpoint is shared."""
    if not asks_first(here.state, here.opened):
        return _submit(here, 1)
    old = owed(here.state)
    if old:
        return _poll(here, why="what was superseded to end, since the checkpoint is shared", needs=old)
    if is_answered(here.state):
        return _submit(here, 1)
    return Append(fact=superseding_hold(here.state, here.opened, here.now), generation=here.state.generation)


def _carry_on(here: _Situation, submission: SubmissionState) -> Step:
    """The newest submission is on its way, queued or running."""
    state, opened = here.state, here.opened
    if submission.landing is Landing.INTENDED:
        return _poll(here, why=f"submission {submission.n} to land", find=(submission,))
    if submission.may_restart and _last_restart(state, opened):
        return ForbidRestarts(submission=submission)
    unwanted = pending_too_long(opened, submission, here.now) or submission.retiring is not None or _elsewhere(state)
    stop = (submission,) if unwanted else ()
    return _poll(here, why="the execution to end", observe=(submission,), stop=stop, needs=(submission,))


def _elsewhere(state: LineageState) -> bool:
    """Whether a person has chosen another resume point since, which takes a submission of its own."""
    newest = state.newest
    return newest is not None and (newest.base, newest.floor) != (state.base, state.floor)


def pending_too_long(opened: Opened, submission: SubmissionState, now: datetime) -> bool:
    """Whether a submission has been queued for longer than the spec's ``max_pending``."""
    limit = opened.spec.max_pending
    execution = submission.newest
    if limit is None or execution is None or execution.state is not ObjectState.QUEUED:
        return False
    return now >= execution.since + limit


def _last_restart(state: LineageState, opened: Opened) -> bool:
    """Whether the scheduler's next restart by itself could be one too many: by a budget, or for want of progress."""
    limit = opened.spec.recovery.no_progress
    if limit is not None and state.fruitless >= limit - 1:
        return True
    return any(opened.plan.rule(cause).budget - state.spent.get(cause, 0) <= 1 for cause in SCHEDULER_RESTARTS)


def _after_end(here: _Situation, submission: SubmissionState, end: End) -> Step:
    state, opened = here.state, here.opened
    if end.restart is not None and submission.requeueing == end.restart + 1:
        return _await_restart(here, submission, submission.requeueing_at)
    word = _word(state)
    if word is not None and word.lifted_by is LiftedBy.PERSON:
        return _after_lift(here, word, submission, end)
    if end.cause is Cause.COMPLETED:
        return _finish(here, Outcome.SUCCEEDED, "the program exited 0")
    if end.cause is Cause.STOPPED:
        return _finish(here, Outcome.STOPPED, "stopped at the scheduler")
    if end.cause is Cause.DEADLINE:
        return _finish(here, Outcome.DEADLINE, "the total deadline passed")
    rule, failed = opened.plan.recovery(end.cause), end.cause is Cause.FAILED
    if failed and end.exit_code in opened.spec.recovery.final_exit_codes:
        return _finish(here, Outcome.FAILED, f"exit code {end.exit_code} is never run again{end.told}")
    if failed and rule.action is Action.FAIL:
        return _finish(here, Outcome.FAILED, end.told_of_failure)
    if leaves_no_time(state, max(here.now, state.not_before or here.now)):
        # Whatever a rule, a hold or a delay would lead to, nothing can be started any more. Only a failure of the
        # program's own that ends the job ends it as that: time would have changed nothing.
        return Retire(submission=submission) if submission.may_restart else _out_of_time(here, end)
    if rule.action is Action.FAIL:
        return _finish(here, Outcome.FAILED, end.told_of_failure)
    if rule.action is Action.HOLD:
        return _hold_after(here, submission, end, f"{end.cause}{end.told}")
    if state.spent.get(end.cause, 0) > rule.budget:
        why = f"the budget of {rule.budget} for {end.cause} is spent{end.told}"
        return _hold_after(here, submission, end, why, rule.action)
    limit = opened.spec.recovery.no_progress
    if limit is not None and state.fruitless >= limit:
        why = f"{state.fruitless} executions in a row ended without a new save, the last one {end.cause}{end.told}"
        return _hold_after(here, submission, end, why, rule.action)
    if opened.plan.holds_first(end.cause) and word is None:
        why = f"{end.cause}, and the checkpoint is shared: are the processes of the old execution gone?{end.told}"
        return _hold_after(here, submission, end, why, rule.action, signal_may_lift=True)
    if submission.may_restart and rule.action is Action.RESUBMIT:
        return Retire(submission=submission)
    if state.not_before is not None and here.now < state.not_before:
        observe = (submission,) if submission.may_restart else ()
        return _poll(here, why=f"the delay after {end.cause}", observe=observe, wake_at=state.not_before)
    return _again(here, submission, end, rule.action)


def _word(state: LineageState) -> HoldLifted | None:
    """What was said about the newest submission: that an older one is gone says nothing of how this one goes on."""
    lifted = state.lifted
    gone = lifted is not None and lifted.resolution is Resolution.RUN_AGAIN and is_about_older(state)
    return None if gone else lifted


def _after_lift(here: _Situation, lifted: HoldLifted, submission: SubmissionState, end: End) -> Step:
    """A person's word, read before anything else, holds until the next submission."""
    rule = here.opened.plan.rule(end.cause)
    if lifted.resolution is Resolution.RUN_AGAIN and end.cause is Cause.COMPLETED:
        # It turned up and did its work while the job was held.
        return _finish(here, Outcome.SUCCEEDED, "the program exited 0")
    chosen = lifted.resolution is Resolution.RUN_AGAIN and rule.recovers
    return _again(here, submission, end, rule.action if chosen else Action.RESUBMIT)


def _again(here: _Situation, submission: SubmissionState, end: End, action: Action) -> Step:
    same, restart = not _elsewhere(here.state), end.restart
    if leaves_no_time(here.state, here.now):
        return _replace(here, submission)
    if action is Action.REQUEUE and same and submission.may_restart and restart is not None and restart < MAX_RESTART:
        if end.cause in SCHEDULER_RESTARTS and _word(here.state) is None:
            return _await_restart(here, submission, end.at)
        return Requeue(submission=submission, restart=restart + 1)
    return _replace(here, submission)


def _await_restart(here: _Situation, submission: SubmissionState, since: datetime | None) -> Step:
    """The scheduler is to restart the object; if it does not within its bound, another object takes its place."""
    due = since + here.capabilities.restart_bound if since is not None else here.now
    if here.now < due and submission.may_restart:
        return _poll(here, why="the scheduler to restart the object", observe=(submission,), wake_at=due)
    return _replace(here, submission)


def _replace(here: _Situation, submission: SubmissionState) -> Step:
    if submission.may_restart:
        return Retire(submission=submission)
    return _submit(here, submission.n + 1)


def _submit(here: _Situation, n: int) -> Step:
    state = here.state
    if leaves_no_time(state, here.now):
        return _out_of_time(here, end_of(state.newest) if state.newest is not None else None)
    if n > MAX_SUBMISSION:
        return _hold(here, state.newest, None, f"all {MAX_SUBMISSION} submissions of this generation are used up")
    allowed = here.opened.plan.scheduler_restarts and not _last_restart(state, here.opened)
    return Submit(n=n, base=state.base, floor=state.floor, restarts_allowed=allowed)


def _hold_after(
    here: _Situation,
    submission: SubmissionState,
    end: End,
    why: str,
    stands_for: Action | None = None,
    signal_may_lift: bool = False,
) -> Step:
    """Hold, once the scheduler cannot run the object again behind the hold's back."""
    if submission.may_restart:
        return Retire(submission=submission)
    return _hold(here, submission, end, why, stands_for, signal_may_lift)


def _hold(
    here: _Situation,
    submission: SubmissionState | None,
    end: End | None,
    why: str,
    stands_for: Action | None = None,
    signal_may_lift: bool = False,
    *,
    expires: bool = True,
) -> Append:
    """Open a hold. Its id is its place in the record, so two supervisors that see the same open the same.

    One that nobody can be asked about waits for a person alone, and a suspension has no end but a person's word.
    """
    suspended = end is not None and end.cause is Cause.SUSPENDED
    known = submission is not None and submission.object is not None and end is not None and end.restart is not None
    return Append(
        fact=HoldOpened(
            hold=f"h{here.state.seq + 1}",
            why=why,
            cause=end.cause if end else None,
            stands_for=stands_for,
            n=submission.n if submission else None,
            restart=end.restart if end else None,
            object=submission.object if submission else None,
            until=until_of(here.state, here.opened, here.now) if expires and not suspended else None,
            signal_may_lift=signal_may_lift and known,
        ),
        generation=here.state.generation,
    )


def _hold_reopened(here: _Situation, reopened: Reopened) -> Step:
    """Whatever was reopened holds first: who takes it up again says with what."""
    submission = here.state.newest
    who, after = reopened.who or "a person", f" after {reopened.after}" if reopened.after else ""
    why = f"reopened by {who}{after}{f': {reopened.note}' if reopened.note else ''}"
    end = end_of(submission) if submission is not None else None
    if leaves_no_time(here.state, here.now):
        # It goes on from where it was, and its time with it: nobody is asked what could not be done.
        ending = _ending(here)
        return ending if ending is not None else _out_of_time(here, end)
    if submission is None or end is None:
        return _hold(here, submission, end, why, Action.RESUBMIT)
    return _hold_after(here, submission, end, why, Action.RESUBMIT)


def _finish(here: _Situation, outcome: Outcome, detail: str) -> Step:
    """Finish, unless something of an older submission may still be on its way."""
    unsettled = tuple(submission for submission in here.state.submissions[:-1] if submission.unsettled)
    unsettled = (*owed(here.state), *unsettled)
    if unsettled:
        names = ", ".join(name_of(here.state, each) for each in unsettled)
        return _poll(here, why=f"older submissions to settle: {names}", needs=unsettled)
    return Finish(outcome=outcome, detail=detail)


def _out_of_time(here: _Situation, end: End | None) -> Step:
    after = f" after {end.cause}{end.told}" if end is not None else ""
    return _finish(here, Outcome.DEADLINE, f"the total deadline leaves no time to start again{after}")


def _stopping(here: _Situation, stop: StopRequested) -> Step:
    """A stop was asked for: end what lives, find what may still land, then finish or hold."""
    submission, who = here.state.newest, stop.who or "a person"
    ending = _ending(here)
    if ending is not None:
        return ending
    if stop.intent == "suspend":
        end = end_of(submission) if submission is not None else None
        if leaves_no_time(here.state, here.now):
            return _out_of_time(here, end)
        saved = not here.state.fruitless or here.opened.plan.count_every_execution
        told = "" if saved else "; the execution has saved nothing new"
        return _hold(here, submission, end, f"suspended on request of {who}{told}", expires=False)
    return _finish(here, Outcome.STOPPED, f"stopped on request of {who}")


def _expired(here: _Situation) -> Step:
    """Nobody answered in time: as after a stop, but it can be told from one."""
    held = here.state.lifted_hold
    ending = _ending(here)
    if ending is not None:
        return ending
    return _finish(here, Outcome.HOLD_EXPIRED, f"nobody answered the hold in time: {held.why if held else ''}")


def _ending(here: _Situation) -> Step | None:
    """What is still to be done or told of a newest submission that is not to run any more."""
    submission = here.state.newest
    if submission is not None and submission.unsettled:
        landed = submission.landing is Landing.LANDED
        return _poll(
            here,
            why="the job's processes to end",
            observe=(submission,) if landed else (),
            find=() if landed else (submission,),
            stop=(submission,) if landed else (),
            needs=(submission,),
        )
    if submission is not None and submission.may_restart:
        return Retire(submission=submission)
    end = end_of(submission) if submission is not None else None
    if end is not None and end.cause is Cause.COMPLETED:
        return _finish(here, Outcome.SUCCEEDED, "the program exited 0")
    return None


def _held(here: _Situation, hold: Hold) -> Step:
    """A person must decide. What turns up of a submission that was given up is ended, and is no end of the job."""
    newest = here.state.newest
    if newest is not None and newest.live and newest.given_up and newest.retiring is None:
        restart = newest.newest.restart if newest.newest is not None else 0
        return Append(fact=Retiring(n=newest.n, restart=restart), generation=newest.generation)
    lifting = lift_without_a_person(here.state, here.now, here.capabilities.clock_skew)
    if lifting is not None:
        return Append(fact=lifting, generation=here.state.generation)
    return Held(hold=hold, settle=_settle(here))


def _settle(here: _Situation) -> Poll | None:
    """What goes on while a hold is open: what it is about may turn up, and nothing else may run."""
    newest = here.state.newest
    find = (newest,) if newest is not None and newest.landing is Landing.INTENDED else ()
    observe = (newest,) if newest is not None and newest.live else ()
    stopping = here.state.stop is not None
    stop = tuple(each for each in observe if stopping or each.retiring is not None)
    poll = _poll(here, why="older submissions to settle", find=find, observe=observe, stop=stop)
    return poll if poll.observe or poll.find or poll.stop or poll.retire else None


def _poll(
    here: _Situation,
    *,
    why: str,
    observe: tuple[SubmissionState, ...] = (),
    find: tuple[SubmissionState, ...] = (),
    stop: tuple[SubmissionState, ...] = (),
    needs: tuple[SubmissionState, ...] = (),
    wake_at: datetime | None = None,
) -> Poll:
    """Add what older submissions need: live ones are stopped, those without a known object are looked for.

    An abandoned one goes on being looked for while the lineage is open; it may turn up however late.
    """
    state = here.state
    live = tuple(submission for submission in state.stale if submission.live)
    lost = tuple(each for each in state.stale if each.landing in (Landing.INTENDED, Landing.ABANDONED))
    newest = state.newest
    if newest is not None and newest.landing is Landing.ABANDONED:
        lost = (*lost, newest)
    due = wake_at if wake_at is not None and wake_at > here.now else None
    return Poll(
        observe=(*observe, *live),
        find=(*find, *lost),
        stop=(*stop, *live),
        retire=to_retire(state),
        needs=needs,
        wake_at=due,
        why=why,
    )
