"""Checks of decisions at the moment at which they are written down: when, after what, and on whose word."""

from __future__ import annotations

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Ended, Finished, Opened, Requeueing, Submitting
from prefect_dispatch.model.state import Landing
from prefect_dispatch.testing.simulator.checks_record import Appended

TOLERANCE = 1.0
"""Seconds by which a delay may be short: clocks are read a moment apart."""
RENAMED = {Cause.STOPPED: (Cause.STOPPED, Cause.NO_CAPACITY)}
"""What a scheduler's word may become; every other is recorded as it was said."""
SCHEDULERS_OWN = (Cause.PREEMPTED, Cause.NODE_LOST, Cause.STOPPED, Cause.TIMED_OUT, Cause.OUT_OF_MEMORY)
"""Causes that only a scheduler's word can be the reason for."""


def g5_nothing_is_finished_while_an_older_submission_is_on_its_way(appended: Appended) -> str | None:
    """Whatever may still land or live of an older submission is settled before the end."""
    if not isinstance(appended.entry.fact, Finished):
        return None
    for submission in appended.before.stale:
        if submission.landing is Landing.INTENDED:
            return f"finished while submission {submission.n} may still land"
        if submission.live:
            return f"finished while submission {submission.n} is not known to have ended"
    for submission in appended.before.obligations:
        if submission.may_restart:
            return f"finished while submission {submission.n} of generation {submission.generation} may run again"
    return None


def g13_nothing_is_begun_while_a_stop_is_pending(appended: Appended) -> str | None:
    """After a stop that nobody took back, nothing is submitted and nothing run again."""
    fact, stop = appended.entry.fact, appended.before.stop
    if stop is None or not isinstance(fact, Submitting | Requeueing):
        return None
    return f"submission {fact.n}: {fact.kind} although {stop.who} asked to {stop.intent}"


def g5_a_delay_is_waited_for(appended: Appended) -> str | None:
    """The next execution is not decided before its rule's delay is over, whatever the clocks show."""
    fact, counted, truth = appended.entry.fact, appended.recount, appended.truth
    opened, word = appended.before.opened, counted.word
    if not isinstance(fact, Submitting | Requeueing) or opened is None or counted.last is None or word is not None:
        return None
    waited = appended.at - truth.written_at[counted.last_seq]
    delay = opened.spec.recovery.rule(counted.last).delay if counted.site else opened.plan.rule(counted.last).delay
    if waited >= delay.total_seconds() - TOLERANCE:
        return None
    return f"it runs again {waited:.0f} s after {counted.last}, whose rule says {delay.total_seconds():.0f} s"


def g7_a_recorded_cause_is_what_happened(appended: Appended) -> str | None:
    """What the scheduler says of an end is what is recorded of it, and nobody says it in its place."""
    fact, truth = appended.entry.fact, appended.truth
    if not isinstance(fact, Ended) or fact.cause is Cause.VANISHED:
        return None
    submission = appended.before.submission(appended.entry.generation, fact.n)
    found = truth.object(submission.object) if submission is not None and submission.object is not None else None
    if found is None or (fact.restart < found.restart and not truth.scheduler.shape.earlier_ends):
        return None
    end = next((each for each in found.ended if each.restart == fact.restart), None)
    if end is None:
        return None
    if end.cause is not None:
        allowed = RENAMED.get(end.cause, (end.cause,))
        return None if fact.cause in allowed else f"{found.ref} ended by {end.cause}, and {fact.cause} is recorded"
    if fact.cause is Cause.PREEMPTED and truth.was_noticed(found.ref, fact.restart):
        return None
    if fact.cause in SCHEDULERS_OWN:
        return f"{found.ref} ended with {end.exit}, and {fact.cause} is recorded"
    return None


def g12_an_open_lineage_is_in_the_index(appended: Appended) -> str | None:
    """It is there from the fact behind the one that opens it until the one that finishes it.

    Before the one that opens it there may be the last generation's mark, which its finisher is just taking away.
    """
    truth = appended.truth
    if appended.before.finished is not None or isinstance(appended.entry.fact, Opened):
        return None
    return None if truth.is_in_index() else "the lineage is open, and the index of open ones lacks it"


ON_DECISION = (
    g5_nothing_is_finished_while_an_older_submission_is_on_its_way,
    g13_nothing_is_begun_while_a_stop_is_pending,
    g5_a_delay_is_waited_for,
    g7_a_recorded_cause_is_what_happened,
    g12_an_open_lineage_is_in_the_index,
)
