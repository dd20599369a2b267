"""Checks of each fact at the moment at which it is appended. Each says what is wrong, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    Ended,
    Entry,
    Finished,
    Observed,
    Outcome,
    Requeueing,
    Resolution,
    Retired,
    Submitted,
    Submitting,
)
from prefect_dispatch.model.fold import apply
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.testing.simulator.recount import Recount
from prefect_dispatch.testing.simulator.truth import Truth


@dataclass(frozen=True)
class Appended:
    """A fact that was just appended.

    Attributes:
        truth: what really happened until then, without it.
        entry: the fact.
        actor: who appended it.
        at: when, in seconds since the beginning.
        recount: what the facts before it allow.
    """

    truth: Truth
    entry: Entry
    actor: str
    at: float
    recount: Recount

    @property
    def before(self) -> LineageState:
        """The state before it."""
        return self.truth.states[-1]


def g6_facts_have_no_gap(appended: Appended) -> str | None:
    """Seqs follow one another, and each is written once."""
    expected = len(appended.truth.entries) + 1
    return None if appended.entry.seq == expected else f"fact {appended.entry.seq} was written where {expected} is next"


def g6_nobody_appends_behind_what_they_have_not_read(appended: Appended) -> str | None:
    """A decision stands on all facts before it."""
    last = appended.entry.seq - 1
    if last == 0 or last in appended.truth.known[appended.actor]:
        return None
    return f"fact {appended.entry.seq} ({appended.entry.fact.kind}) was decided without having read fact {last}"


def g6_observations_are_as_new_as_the_record(appended: Appended) -> str | None:
    """An observation whose query began before somebody else's last fact was read is not appended."""
    truth, entry = appended.truth, appended.entry
    if not _is_observation(appended):
        return None
    others = [each.seq for each in truth.entries if each.by != entry.by]
    if not others:
        return None
    known_at = truth.known[appended.actor].get(others[-1])
    asked_at = truth.query_began.get(appended.actor)
    if known_at is not None and asked_at is not None and asked_at >= known_at:
        return None
    return f"{entry.fact.kind} (fact {entry.seq}) was observed before fact {others[-1]} was read"


def _is_observation(appended: Appended) -> bool:
    fact = appended.entry.fact
    if isinstance(fact, Submitted):
        submission = appended.before.submission(appended.entry.generation, fact.n)
        return submission is not None and submission.writer != appended.entry.by
    if isinstance(fact, Abandoned):
        return not _given_up_by_a_person(appended, fact.n)
    return isinstance(fact, Observed | Ended | Retired)


def _given_up_by_a_person(appended: Appended, n: int) -> bool:
    submission = appended.before.submission(appended.entry.generation, n)
    lifted = appended.before.lifted_hold
    return submission is not None and lifted is not None and lifted.token == submission.token


def g5_nothing_is_abandoned_that_landed_in_time(appended: Appended) -> str | None:
    """Whoever says that a submission never landed asked after the last moment at which it could have."""
    fact, truth = appended.entry.fact, appended.truth
    if not isinstance(fact, Abandoned) or _given_up_by_a_person(appended, fact.n) or not truth.clocks_agree:
        return None
    submission = appended.before.submission(appended.entry.generation, fact.n)
    if submission is None or submission.token not in truth.landed or truth.landed_late(submission.token):
        return None
    return f"submission {fact.n} was taken for abandoned, and its object has been there since it landed in time"


def g5_the_old_object_is_retired_before_the_next_is_submitted(appended: Appended) -> str | None:
    """Before N+1 the object of N, where it is known, has ended for good. Older ones are asked to, by g13."""
    fact, truth, newest = appended.entry.fact, appended.truth, appended.before.newest
    if not isinstance(fact, Submitting) or newest is None or newest.object is None:
        return None
    found = truth.object(newest.object)
    if found is None or found.purged:
        return None
    if not found.is_over:
        return f"submission {fact.n} is decided while {found.ref} of submission {newest.n} is {found.state}"
    if found.restarts_allowed:
        return f"submission {fact.n} is decided while {found.ref} of submission {newest.n} may run again by itself"
    return None


def g5_no_execution_beyond_its_budget(appended: Appended) -> str | None:
    """Nothing runs again after a cause whose budget is spent, unless a person says so."""
    fact, counted = appended.entry.fact, appended.recount
    opened = appended.before.opened
    again = isinstance(fact, Requeueing) or (isinstance(fact, Submitting) and fact.n > 1)
    if not again or opened is None or counted.last is None or counted.word is not None:
        return None
    rule = opened.spec.recovery.rule(counted.last) if counted.site else opened.plan.rule(counted.last)
    if not rule.recovers:
        return f"it runs again after {counted.last}, whose rule is {rule.action}"
    if counted.spent[counted.last] > rule.budget:
        return f"it runs again after {counted.spent[counted.last]} ends by {counted.last}, of {rule.budget}"
    limit = opened.spec.recovery.no_progress
    if limit is not None and counted.fruitless >= limit:
        return f"it runs again after {counted.fruitless} executions without a save, of {limit}"
    return None


def g1_a_recorded_choice_is_what_is_submitted(appended: Appended) -> str | None:
    """Base and floor of a submission are the last that a person chose, and no requeue loses such a word."""
    fact, counted = appended.entry.fact, appended.recount
    if isinstance(fact, Submitting):
        expected = counted.choice()
        if (fact.base, fact.floor) != expected:
            return f"submission {fact.n} has base and floor {(fact.base, fact.floor)}, not {expected}"
    elsewhere = (Resolution.CONTINUE_FROM, Resolution.FROM_SCRATCH)
    if isinstance(fact, Requeueing) and counted.word is not None and counted.word.resolution in elsewhere:
        return f"submission {fact.n} is requeued although a person chose {counted.word.resolution}"
    return None


def g7_an_end_is_recorded_only_when_it_is_one(appended: Appended) -> str | None:
    """What is said to have ended has ended, and what vanished is not there."""
    fact, truth = appended.entry.fact, appended.truth
    if not isinstance(fact, Ended):
        return None
    submission = appended.before.submission(appended.entry.generation, fact.n)
    if submission is None or submission.object is None:
        return f"an end of submission {fact.n}, which has no object"
    found = truth.object(submission.object)
    if found is None:
        return f"{submission.object} is said to have ended by {fact.cause}, and has not landed yet"
    if not truth.has_ended(submission.object, fact.restart):
        return (
            f"{found.ref} r{fact.restart} is said to have ended by {fact.cause}; it is {found.state} r{found.restart}"
        )
    if fact.cause is Cause.VANISHED and not found.purged and found.ended and found.ended[-1].cause is not None:
        return f"{found.ref} is said to have vanished, and the scheduler knows it"
    return None


def g7_an_observed_restart_has_begun(appended: Appended) -> str | None:
    """No restart is recorded that the scheduler has only counted so far."""
    fact, truth = appended.entry.fact, appended.truth
    if not isinstance(fact, Observed):
        return None
    submission = appended.before.submission(appended.entry.generation, fact.n)
    found = truth.object(submission.object) if submission is not None and submission.object is not None else None
    if found is None or fact.restart > found.restart:
        return f"submission {fact.n} is said to be {fact.state} in r{fact.restart}, which has not begun"
    return None


def g7_success_is_a_program_that_has_done_its_work(appended: Appended) -> str | None:
    """Nothing but a program that made all its steps is a success."""
    fact = appended.entry.fact
    if not isinstance(fact, Finished) or fact.outcome is not Outcome.SUCCEEDED:
        return None
    newest = appended.before.newest
    done = [each for each in appended.truth.executions.values() if each.completed]
    if newest is not None and any(each.document.token == newest.token for each in done):
        return None
    return "finished as succeeded, and no execution of the newest submission has done its work"


def g5_finished_leaves_nothing_on_its_way(appended: Appended) -> str | None:
    """At the end every object that could be known has ended or was asked to."""
    truth = appended.truth
    if not isinstance(appended.entry.fact, Finished):
        return None
    for found in truth.scheduler.objects():
        excused = truth.landed_late(found.ref.token) or truth.a_person_accounts_for(found.ref.token)
        if not found.is_over and found.ref not in truth.stopped and not excused and truth.clocks_agree:
            return f"finished while {found.ref} is {found.state}, and nobody asked it to stop"
    return None


def g6_every_prefix_folds(appended: Appended) -> str | None:
    """The record folds with the new fact too."""
    try:
        apply(appended.before, appended.entry)
    except Exception as error:
        return f"fact {appended.entry.seq} does not fold: {error!r}"
    return None


ON_FACT = (
    g6_facts_have_no_gap,
    g6_nobody_appends_behind_what_they_have_not_read,
    g6_every_prefix_folds,
    g6_observations_are_as_new_as_the_record,
    g5_nothing_is_abandoned_that_landed_in_time,
    g5_the_old_object_is_retired_before_the_next_is_submitted,
    g5_no_execution_beyond_its_budget,
    g1_a_recorded_choice_is_what_is_submitted,
    g7_an_end_is_recorded_only_when_it_is_one,
    g7_an_observed_restart_has_begun,
    g7_success_is_a_program_that_has_done_its_work,
    g5_finished_leaves_nothing_on_its_way,
)
