"""Checks of holds: with a shared checkpoint nothing runs unasked, and no hold ends by the clock before its time."""

from __future__ import annotations

from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.model.facts import (
    Cessation,
    Finished,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Opened,
    Outcome,
    Requeueing,
    SubmitRefused,
    Submitting,
)
from prefect_dispatch.testing.simulator.checks_record import Appended

TOLERANCE = 1.0
"""Seconds by which a hold may end early: clocks are read a moment apart."""


def g10_no_second_writer_without_a_word(appended: Appended) -> str | None:
    """With a shared checkpoint each execution but the first has a person's or the site's word of its own before it."""
    fact, opened = appended.entry.fact, appended.before.opened
    if opened is None or not opened.spec.shared_checkpoint or not isinstance(fact, Submitting | Requeueing):
        return None
    if isinstance(fact, Requeueing):
        return f"submission {fact.n} is requeued although its checkpoint is shared"
    if fact.restarts_allowed:
        return f"submission {fact.n} may be restarted by the scheduler itself although its checkpoint is shared"
    return _unasked(appended, f"submission {fact.n} is decided although the checkpoint is shared and nobody said so")


def g10_no_supersession_without_a_word(appended: Appended) -> str | None:
    """The first submission of a generation has one where its own spec or one since the last submission shares."""
    fact, entries = appended.entry.fact, appended.truth.entries
    if not isinstance(fact, Submitting) or fact.n > 1:
        return None
    submitted = [place for place, entry in enumerate(entries) if isinstance(entry.fact, Submitting)]
    openings = [(place, entry.fact) for place, entry in enumerate(entries) if isinstance(entry.fact, Opened)]
    under = max((place for place, _ in openings if submitted and place < submitted[-1]), default=0)
    if not any(opened.spec.shared_checkpoint for place, opened in openings if place >= under):
        return None
    return _unasked(appended, f"generation {appended.entry.generation} begins to write where another one does, unasked")


def _unasked(appended: Appended, fault: str) -> str | None:
    """The fault, unless a word came since the last submission that was not refused, in this very generation."""
    entries = appended.truth.entries
    refused = {(each.generation, each.fact.n) for each in entries if isinstance(each.fact, SubmitRefused)}
    made = [
        place
        for place, each in enumerate(entries)
        if isinstance(each.fact, Submitting)
        # Within its generation a refused one is asked about too; before a supersession it was never another writer.
        and (each.generation == appended.entry.generation or (each.generation, each.fact.n) not in refused)
    ]
    if not made:
        return None
    since = [each.fact for each in entries[made[-1] + 1 :] if each.generation == appended.entry.generation]
    holds = {each.hold: each for each in since if isinstance(each, HoldOpened)}
    lifts = [each for each in since if isinstance(each, HoldLifted) and each.hold in holds]
    if any(each.lifted_by is LiftedBy.PERSON or _the_site_said_so(appended, holds[each.hold]) for each in lifts):
        return None
    return fault


def _the_site_said_so(appended: Appended, hold: HoldOpened) -> bool:
    """Whether the site really said that all of the held execution is gone, and that is in the record."""
    if hold.object is None or hold.restart is None:
        return False
    recorded = any(
        isinstance(entry.fact, Cessation) and entry.fact.hold == hold.hold and entry.fact.answer == "ceased"
        for entry in appended.truth.entries
    )
    return recorded and attempt_of(hold.object.token, hold.restart) in appended.truth.gone


def g10_a_signal_lifts_only_what_it_may(appended: Appended) -> str | None:
    """No supervisor and no poller writes a lift in the site's name for a hold that is a person's."""
    fact = appended.entry.fact
    if not isinstance(fact, HoldLifted) or fact.lifted_by is not LiftedBy.SIGNAL:
        return None
    # As the record has it, whatever a fold makes of that.
    told = (entry.fact for entry in appended.truth.entries)
    opened = next((each for each in told if isinstance(each, HoldOpened) and each.hold == fact.hold), None)
    if opened is None or appended.before.hold is None or appended.before.hold.opened.hold != fact.hold:
        return f"{fact.hold} is lifted by a signal, and is not open"
    if not opened.signal_may_lift or not _the_site_said_so(appended, opened):
        return f"{fact.hold} is lifted by a signal, which may not or did not"
    return None


def g12_no_hold_expires_before_its_time(appended: Appended) -> str | None:
    """As far as the clocks agree, a hold waits for as long as its spec says."""
    fact, truth, opened = appended.entry.fact, appended.truth, appended.before.opened
    if not isinstance(fact, HoldLifted) or fact.lifted_by is not LiftedBy.EXPIRY or opened is None:
        return None
    since = next(
        truth.written_at[entry.seq]
        for entry in truth.entries
        if isinstance(entry.fact, HoldOpened) and entry.fact.hold == fact.hold
    )
    length = opened.spec.hold_for
    if opened.spec.shared_checkpoint or length is None:
        return f"{fact.hold} has expired, and waits for a day or for ever"
    waited = appended.at - since
    if truth.clocks_agree and waited < length.total_seconds() - TOLERANCE:
        return f"{fact.hold} has expired after {waited:.0f} s of {length.total_seconds():.0f} s"
    return None


def g12_an_end_by_expiry_has_one(appended: Appended) -> str | None:
    """Only a job whose hold has expired ends so."""
    fact, lifted = appended.entry.fact, appended.before.lifted
    if not isinstance(fact, Finished) or fact.outcome is not Outcome.HOLD_EXPIRED:
        return None
    if lifted is not None and lifted.lifted_by is LiftedBy.EXPIRY and appended.before.stop is None:
        return None
    return "finished as hold_expired, and no hold has"


ON_HOLD = (
    g10_no_second_writer_without_a_word,
    g10_no_supersession_without_a_word,
    g10_a_signal_lifts_only_what_it_may,
    g12_no_hold_expires_before_its_time,
    g12_an_end_by_expiry_has_one,
)
