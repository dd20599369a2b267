"""Checks of supersessions: one winner, what it goes on from, and what it owes to the generation before."""

from __future__ import annotations

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.facts import Finished, Opened
from prefect_dispatch.testing.simulator.checks_advance import Took
from prefect_dispatch.testing.simulator.checks_record import Appended


def g6_a_generation_takes_the_place_that_was_meant(appended: Appended) -> str | None:
    """Of two who supersede one generation at once one does so; the other's does not take the first one's place."""
    fact, entry, truth = appended.entry.fact, appended.entry, appended.truth
    if not isinstance(fact, Opened) or not appended.before.opened:
        return None
    present = appended.before.generation
    if entry.generation != present + 1 or fact.parent != present:
        return f"generation {entry.generation} of parent {fact.parent} is opened after generation {present}"
    meant = truth.meant[fact.request]
    if meant.generation != present:
        return f"generation {meant.generation} was to be superseded, and generation {present} was"
    again = any(isinstance(each.fact, Opened) and each.fact.request == fact.request for each in truth.entries)
    return f"{fact.request} was carried out twice" if again else None


def g1_a_generation_goes_on_from_what_was_chosen(appended: Appended) -> str | None:
    """Base and floor are the parent's where nobody chose, else the choice and the first epoch of the new one."""
    fact, entry = appended.entry.fact, appended.entry
    if not isinstance(fact, Opened) or not appended.before.opened:
        return None
    resume = appended.truth.meant[fact.request].resume
    first = Epoch(entry.generation, 1, 0).number
    expected = (resume, first) if resume is not None else appended.recount.choice()
    found = (fact.base, fact.floor)
    return None if found == expected else f"generation {entry.generation} has base and floor {found}, not {expected}"


def g5_nothing_is_finished_that_the_scheduler_may_run_again(appended: Appended) -> str | None:
    """At the end no object of an older generation is left to its scheduler."""
    if not isinstance(appended.entry.fact, Finished):
        return None
    for submission in appended.before.obligations:
        found = appended.truth.object(submission.object) if submission.object is not None else None
        known = found is not None and not found.purged and found.ref not in appended.truth.stopped
        if found is not None and known and not appended.truth.landed_late(found.ref.token) and found.restarts_allowed:
            given_up = appended.truth.was_given_up(found.ref)
            if submission.restarts_allowed and not given_up:
                return f"finished while {found.ref} of generation {submission.generation} may run again by itself"
    return None


def g13_an_old_object_is_ended_for_good(took: Took) -> str | None:
    """Who has nothing to do has asked for the end of each old object that its scheduler may run again by itself."""
    if not took.rests:
        return None
    for submission in took.advanced.state.obligations:
        if not submission.may_restart or submission.live or submission.object in took.truth.stopped:
            continue
        found = took.truth.object(submission.object) if submission.object is not None else None
        if found is not None and not found.purged and found.restarts_allowed:
            return f"{found.ref} of generation {submission.generation} may run again, and nobody asked it to end"
    return None


ON_SUPERSESSION = (
    g6_a_generation_takes_the_place_that_was_meant,
    g1_a_generation_goes_on_from_what_was_chosen,
    g5_nothing_is_finished_that_the_scheduler_may_run_again,
)
