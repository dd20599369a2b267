"""Holds: how long one waits, what lifts it without a person, and which answers of a site are worth a fact. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from prefect_dispatch.model.facts import LAST_YEAR, Cessation, HoldDue, HoldLifted, LiftedBy, Opened, Resolution
from prefect_dispatch.model.recovery import SHARED_HOLD_FOR
from prefect_dispatch.model.state import Hold, LineageState

EXPIRY_BOUND = timedelta(minutes=10)
"""How far apart the two looks must be that find the time of a hold over; for a shorter hold, its own length."""
ANSWER_AGAIN_AFTER = timedelta(hours=1)
"""How long an answer of a site stands in the record before the same answer is worth a fact again."""


def until_of(state: LineageState, opened: Opened, now: datetime) -> datetime | None:
    """Until when a hold that is opened now waits; None for one without an end.

    Counted from the later of one's own clock and the record's last fact: a clock that was set back behind what others
    have written shortens no hold.
    """
    length = SHARED_HOLD_FOR if opened.spec.shared_checkpoint else opened.spec.hold_for
    if length is None:
        return None
    until = max(now, state.at or now) + length
    return until if until.year <= LAST_YEAR else None


def lift_without_a_person(state: LineageState, now: datetime, skew: timedelta) -> HoldLifted | HoldDue | None:
    """What follows for the open hold from the site's answer and from the clock alone.

    A recorded ``ceased`` lifts a hold that a signal may lift. What is gone does not come back, so whoever reads the
    answer may draw the conclusion, whether its writer lives or not.

    Expiry takes two looks that both find ``until`` passed, by more than clocks may be apart, the second one a bound
    after the first. The first is a fact, so that pollers which are a new process each time can expire a hold too, and
    so that the time in which nobody looked does not count: after an outage the bound is still to come. A first look
    from the future is of a clock that is wrong, and another one takes its place.

    Args:
        state: the lineage.
        now: one's own clock.
        skew: how far the clocks of two supervisors may be apart.
    """
    hold = state.hold
    if hold is None or (state.stop is not None and state.stop.intent == "abandon"):
        return None
    id = hold.opened.hold
    if hold.opened.signal_may_lift and hold.ceased:
        return HoldLifted(hold=id, lifted_by=LiftedBy.SIGNAL, resolution=Resolution.RUN_AGAIN)
    until, due = hold.opened.until, hold.due_at
    if until is None or now - until < skew:
        return None
    if due is None or due - now > skew:
        return HoldDue(hold=id)
    bound = min(EXPIRY_BOUND, max(until - hold.at, timedelta(0)))
    if now - due < bound + skew:
        return None
    return HoldLifted(hold=id, lifted_by=LiftedBy.EXPIRY, resolution=Resolution.EXPIRE)


def is_news(hold: Hold, answer: Cessation, now: datetime) -> bool:
    """Whether an answer is worth a fact: another than the last one, or the same after a while.

    A day of the same answer, asked for every minute, is 24 facts and not 1,440.
    """
    known, at = hold.cessation, hold.answered_at
    if known is None or at is None or known.answer != answer.answer:
        return True
    return abs(now - at) >= ANSWER_AGAIN_AFTER
