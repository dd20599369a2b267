"""The simulator finds what is broken on purpose: each mutation of the protocol fails within the seeds that CI runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from prefect_dispatch.errors import Absent, Ambiguous, Exists, SchedulerError, SubmitRefused, UnusableCheckpoint
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.submission import Submission
from prefect_dispatch.model import fold, next_step
from prefect_dispatch.model import plan as plan_module
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    Ended,
    HoldLifted,
    LiftedBy,
    Observed,
    Requeueing,
    Resolution,
    Retired,
    Submitted,
)
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.state import Hold, Landing
from prefect_dispatch.model.steps import Submit
from prefect_dispatch.stores import lineage_root, pin, publisher, resume
from prefect_dispatch.stores.claim import make_claim
from prefect_dispatch.stores.layout import PUBLICATIONS, manifests_folder
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.resume import Resume, choose
from prefect_dispatch.supervisor import advance, observing
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.observing import Observer
from prefect_dispatch.supervisor.own_time import OwnTime
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.request import request_of
from prefect_dispatch.supervisor.stopping import Stopper
from prefect_dispatch.supervisor.submitting import Submitter
from support.mutations import SEEDS, first_failure

Patch = pytest.MonkeyPatch


async def is_absent(access: Access, submission) -> bool:
    """Whether the scheduler says for certain that it has no object of a submission."""
    with suppress(Ambiguous):
        return await access.scheduler.find(submission.token) is None
    return False


def others_submit_too(patch: Patch) -> None:
    """Whoever sees an intent and no object makes the call."""
    find = Observer.find

    async def find_or_submit(self, state, submission, needed):
        if submission.landing is not Landing.INTENDED or not await is_absent(self._access, submission):
            return await find(self, state, submission, needed)
        record_id = self._access.record.id()
        request = request_of(self._access.lineage, record_id, state.opened, submission, {}, lambda: True, state)
        reference = await self._access.scheduler.submit(request)
        await self._access.append(Submitted(n=submission.n, object=reference), submission.generation)

    patch.setattr(Observer, "find", find_or_submit)


def a_lost_append_is_made_behind_what_came(patch: Patch) -> None:
    """Who loses an append writes the same decision behind whatever is there."""
    append = Record.append

    def append_anyway(self, fact, generation=None):
        while True:
            with suppress(Exists):
                return append(self, fact, generation)
            self.refresh()

    patch.setattr(Record, "append", append_anyway)


def what_was_abandoned_is_forgotten(patch: Patch) -> None:
    """Nobody looks for a submission that was given up."""
    poll = next_step._poll

    def poll_known(here, **asked):
        step = poll(here, **asked)
        known = tuple(each for each in step.find if each.landing is not Landing.ABANDONED)
        return replace(step, find=known)

    patch.setattr(next_step, "_poll", poll_known)


def the_floor_is_ignored(patch: Patch) -> None:
    """Every publication may be resumed from, whatever was chosen."""
    candidates = ResumeChoice.candidates
    patch.setattr(ResumeChoice, "candidates", lambda self, *given: candidates(ResumeChoice(self.base, 0), *given))


def the_count_of_an_ending_object_is_believed(patch: Patch) -> None:
    """An object that is ending is taken for the restart that it counts."""
    news = observing.news

    def believing(submission, observation):
        ending = observation.state is ObjectState.ENDING
        running = observation.model_copy(update={"state": ObjectState.RUNNING})
        return news(submission, running if ending else observation)

    patch.setattr(observing, "news", believing)


def a_lost_observation_is_appended_unasked(patch: Patch) -> None:
    """Who loses the append of an observation appends it again without another query."""
    append = Access.append

    async def append_stale(self, fact, generation=None):
        while True:
            try:
                return await append(self, fact, generation)
            except Exists:
                if not isinstance(fact, Observed | Ended):
                    raise
                self.record.refresh()

    patch.setattr(Access, "append", append_stale)


def the_first_end_is_free(patch: Patch) -> None:
    """Each cause may end one execution more than its budget."""
    count = fold._count

    def count_from_the_second(state, submission, cause, at):
        charged = count(state, submission, cause, at)
        if charged is state or charged.spent[cause] > 1:
            return charged
        return (
            charged.model_copy(update={"spent": {**charged.spent, cause: 1}})
            if cause in state.spent
            else (charged.model_copy(update={"spent": {**state.spent, cause: 0}}))
        )

    patch.setattr(fold, "_count", count_from_the_second)


def a_no_is_trusted_at_once(patch: Patch) -> None:
    """A submission that is not there when its call is given up is taken for abandoned."""
    find = Observer.find

    async def find_hastily(self, state, submission, needed):
        if submission.landing is Landing.INTENDED and await is_absent(self._access, submission):
            if self._access.clock.now() > submission.give_up_at:
                await self._access.append(Abandoned(n=submission.n), submission.generation)
            return
        await find(self, state, submission, needed)

    patch.setattr(Observer, "find", find_hastily)


def restarts_are_never_forbidden(patch: Patch) -> None:
    """The scheduler may make the last budgeted restart, and the one after it."""
    patch.setattr(next_step, "_last_restart", lambda state, opened: False)


def the_old_object_is_not_retired(patch: Patch) -> None:
    """An object counts as retired without having been told anything."""

    async def say_so(self, state, submission):
        await self._access.append(Retired(n=submission.n), submission.generation)

    patch.setattr(Stopper, "retire", say_so)


def a_save_is_named_before_its_manifest(patch: Patch) -> None:
    """The publication's name comes first."""

    def publish_hastily(store, attempt, manifest, still_whole=None):
        store.sync(manifest.publication.path, manifest.files)
        with suppress(Exists):
            store.ledger(PUBLICATIONS).create(manifest.publication.name)
        store.ledger(manifests_folder(attempt)).create(manifest.name, manifest.encode())
        return manifest.publication

    patch.setattr(publisher, "_publish", publish_hastily)


def the_step_comes_before_the_epoch(patch: Patch) -> None:
    """The highest step is the newest save."""

    def by_step(publication):
        return (publication.step, publication.epoch.number, publication.path.encode())

    def highest_first(names):
        return iter(sorted(map(Publication.parse, names), key=by_step, reverse=True))

    patch.setattr(Publication, "order", property(by_step))
    patch.setattr(resume, "greatest_first", highest_first)


def a_claim_is_shared(patch: Patch) -> None:
    """A second wrapper of one execution goes on like the first."""

    def claim_anyway(store, claim):
        with suppress(Exception):
            make_claim(store, claim)

    patch.setattr(lineage_root, "make_claim", claim_anyway)
    start = lineage_root.LineageRoot.start

    def start_anyway(self, *given):
        with suppress(Exception):
            start(self, *given)

    patch.setattr(lineage_root.LineageRoot, "start", start_anyway)


def any_lift_lifts_any_hold(patch: Patch) -> None:
    """A person's word about an old hold counts for the next one too."""
    lifted = fold._lifted

    def lift_whatever(state, fact):
        named = fact if state.hold is None else fact.model_copy(update={"hold": state.hold.opened.hold})
        return lifted(state, named)

    patch.setattr(fold, "_lifted", lift_whatever)


def one_missing_answer_is_the_end(patch: Patch) -> None:
    """An object that one answer lacks has vanished."""
    patch.setattr(Observer, "_absent_long_enough", lambda self, *given: True)


def what_cannot_be_told_is_not_there(patch: Patch) -> None:
    """An ambiguous answer counts as a no."""
    find = Observer.find

    async def find_or_give_up(self, state, submission, needed):
        try:
            await self._access.scheduler.find(submission.token)
        except Ambiguous:
            if submission.landing is Landing.INTENDED:
                await self._access.append(Abandoned(n=submission.n), submission.generation)
            return
        await find(self, state, submission, needed)

    patch.setattr(Observer, "find", find_or_give_up)


def what_is_unusable_is_started_over(patch: Patch) -> None:
    """Where no save is usable the program starts from scratch."""

    def choose_or_scratch(*given):
        try:
            return choose(*given)
        except UnusableCheckpoint:
            return Resume()

    patch.setattr(pin, "choose", choose_or_scratch)


def unknown_is_the_end(patch: Patch) -> None:
    """A word that nobody knows is taken for the object's absence."""
    observe = Observer.observe

    async def observe_hastily(self, state, submissions):
        for each in submissions:
            seen = (await self._access.scheduler.observe([each.object])).get(each.object)
            if seen is not None and seen.state is ObjectState.UNKNOWN:
                return await self.take(state, each, None)
        return await observe(self, state, submissions)

    patch.setattr(Observer, "observe", observe_hastily)


def a_choice_is_lost(patch: Patch) -> None:
    """A person's choice of another save is lost on the way to the next submission."""
    submit = next_step._submit

    def submit_as_before(here, n):
        step, newest = submit(here, n), here.state.newest
        if not isinstance(step, Submit) or newest is None:
            return step
        return replace(step, base=newest.base, floor=newest.floor)

    patch.setattr(next_step, "_submit", submit_as_before)


def stops_are_forgotten(patch: Patch) -> None:
    """What is stale or unwanted is not asked to end."""
    poll = next_step._poll

    def poll_kindly(here, **asked):
        step = poll(here, **asked)
        return replace(step, stop=())

    patch.setattr(next_step, "_poll", poll_kindly)


def a_deleted_save_counts_as_whole(patch: Patch) -> None:
    """What a manifest lists is not looked for."""

    def import_whatever(store, attempt, resume):
        with suppress(Absent, Exists):
            store.copy(resume.publication.path, f"meta/{attempt}/resume/save", resume.manifest.files)
        return f"meta/{attempt}/resume/save"

    patch.setattr(MemoryStore, "difference", lambda *_: None)
    patch.setattr(pin, "_import", import_whatever)


def others_requeue_too(patch: Patch) -> None:
    """Whoever waits for a restart that was decided makes the call."""
    poll = Supervisor._poll

    async def poll_and_requeue(self, state, step):
        newest = state.newest
        if newest and newest.object and newest.requeueing is not None and "restart the object" in step.why:
            with suppress(SchedulerError):
                await self._access.scheduler.requeue(newest.object, newest.requeueing)
        await poll(self, state, step)

    patch.setattr(Supervisor, "_poll", poll_and_requeue)


def a_requeue_comes_before_its_intent(patch: Patch) -> None:
    """The call first, then the fact."""

    async def requeue_first(self, state, step):
        await self._access.scheduler.requeue(step.submission.object, step.restart)
        await self._access.append(Requeueing(n=step.submission.n, restart=step.restart))

    patch.setattr(Submitter, "requeue", requeue_first)


def a_requeue_does_not_look_again(patch: Patch) -> None:
    """What was observed before the intent is enough."""

    async def requeue_blindly(self, state, step):
        await self._access.append(Requeueing(n=step.submission.n, restart=step.restart))
        with suppress(SubmitRefused):
            await self._access.scheduler.requeue(step.submission.object, step.restart)

    patch.setattr(Submitter, "requeue", requeue_blindly)


def the_index_keeps_what_is_finished(patch: Patch) -> None:
    """Nobody takes a lineage out of the index of open ones."""
    patch.setattr(Record, "_unmark_open", lambda self: None)


def the_index_never_has_it(patch: Patch) -> None:
    """Nobody writes a lineage into the index of open ones."""
    patch.setattr(Record, "_mark_open", lambda self: None)


def delays_are_skipped(patch: Patch) -> None:
    """The next execution does not wait for its rule's delay."""
    of = OwnTime.of
    patch.setattr(OwnTime, "of", lambda self, state: of(self, state).model_copy(update={"not_before": None}))


def the_wall_clock_is_believed(patch: Patch) -> None:
    """What follows from a time in the record is judged by a clock that may be hours ahead."""
    patch.setattr(OwnTime, "of", lambda self, state: state)
    patch.setattr(OwnTime, "now", lambda self: self._clock.now())


def an_end_that_was_asked_for_is_a_success(patch: Patch) -> None:
    """A program that exits 0 has done its work, whoever asked it to end."""
    cause_of = observing.cause_of

    def cause_by_exit(ended, word, suspended=False):
        saved = ended.cause is None and ended.exit is not None and ended.exit.code == ExitCode.SAVED_ON_REQUEST
        return Cause.COMPLETED if saved else cause_of(ended, word, suspended)

    patch.setattr(observing, "cause_of", cause_by_exit)


def what_stays_unknown_is_gone_in_the_end(patch: Patch) -> None:
    """After a bound nobody is asked about an object that nobody knows anything of."""

    async def take_for_gone(self, state, submissions):
        bound = self._access.scheduler.capabilities.unknown_bound
        for each in submissions:
            unknown = self._unknown.get(each.object)
            if unknown is not None and unknown.asked_at - unknown.since >= bound and each.live:
                return await self.take(state, each, None)

    patch.setattr(Observer, "hold_if_unknown", take_for_gone)


def a_word_about_an_unknown_object_stops_nothing(patch: Patch) -> None:
    """What a person gives up is not asked to end."""

    async def just_say_so(self, state, submission):
        await self._observer.take(state, submission, None)

    patch.setattr(Stopper, "give_up", just_say_so)


def a_stop_between_executions_is_passed_over(patch: Patch) -> None:
    """A stop that finds nothing to end is forgotten, and the next execution begins."""
    decide = advance.next_step

    def decide_without_the_stop(state, now, capabilities):
        idle = state.stop is not None and state.newest is not None and not state.newest.unsettled
        return decide(state.model_copy(update={"stop": None}) if idle else state, now, capabilities)

    patch.setattr(advance, "next_step", decide_without_the_stop)


def a_lost_node_is_a_preemption(patch: Patch) -> None:
    """One cause is recorded for another."""
    patch.setattr(observing, "cause_of", renaming(Cause.NODE_LOST))


def a_failure_is_a_preemption(patch: Patch) -> None:
    """A program that failed is taken for one that was preempted."""
    patch.setattr(observing, "cause_of", renaming(Cause.FAILED))


def an_administrators_stop_is_a_preemption(patch: Patch) -> None:
    """What was stopped at the scheduler runs again."""
    patch.setattr(observing, "cause_of", renaming(Cause.STOPPED))


def renaming(wrong: Cause):
    cause_of = observing.cause_of
    return lambda *said: Cause.PREEMPTED if cause_of(*said) is wrong else cause_of(*said)


def a_shared_checkpoint_is_nobodys_business(patch: Patch) -> None:
    """A rule applies at once although the checkpoint is shared."""
    patch.setattr(Plan, "holds_first", lambda self, cause: False)


def an_abandoned_submission_shares_nothing(patch: Patch) -> None:
    """Where no object is known, nobody is asked before the next one."""
    holds_first = Plan.holds_first
    patch.setattr(
        Plan, "holds_first", lambda self, cause: cause is not Cause.LAUNCH_FAILED and holds_first(self, cause)
    )


def a_silent_site_has_said_yes(patch: Patch) -> None:
    """Whatever a site answers lifts the hold that it may lift."""
    patch.setattr(Hold, "ceased", property(lambda self: self.cessation is not None))


def a_site_may_lift_any_hold(patch: Patch) -> None:
    """Whether a hold is a signal's or a person's is not looked at."""
    apply = fold._of_hold

    def of_hold(state, hold, **update):
        after = apply(state, hold, **update)
        if after.hold is None or "cessation" not in update:
            return after
        opened = after.hold.opened.model_copy(update={"signal_may_lift": True})
        return after.model_copy(update={"hold": after.hold.model_copy(update={"opened": opened})})

    patch.setattr(fold, "_of_hold", of_hold)


def a_schedulers_own_restart_is_let_in(patch: Patch) -> None:
    """The plan lets the scheduler restart what is shared, and the helper starts it."""
    plan_policy = plan_module._restart_policy
    patch.setattr(
        plan_module,
        "_restart_policy",
        lambda spec, capabilities: plan_policy(spec.model_copy(update={"shared_checkpoint": False}), capabilities),
    )
    patch.setattr(next_step, "_last_restart", lambda state, opened: False)
    patch.setattr(Submission, "check_restart", lambda self, restart: None)


def a_hold_expires_at_the_first_look(patch: Patch) -> None:
    """One look by one clock is enough, a bound too early."""

    def lift_hastily(state, now, skew):
        hold = state.hold
        if hold is not None and hold.opened.until is not None and now >= hold.at + (hold.opened.until - hold.at) / 2:
            return HoldLifted(hold=hold.opened.hold, lifted_by=LiftedBy.EXPIRY, resolution=Resolution.EXPIRE)
        return None

    patch.setattr(next_step, "lift_without_a_person", lift_hastily)


MUTATIONS = (
    a_shared_checkpoint_is_nobodys_business,
    an_abandoned_submission_shares_nothing,
    a_silent_site_has_said_yes,
    a_site_may_lift_any_hold,
    a_schedulers_own_restart_is_let_in,
    a_hold_expires_at_the_first_look,
    others_submit_too,
    a_lost_append_is_made_behind_what_came,
    what_was_abandoned_is_forgotten,
    the_floor_is_ignored,
    the_count_of_an_ending_object_is_believed,
    a_lost_observation_is_appended_unasked,
    the_first_end_is_free,
    a_no_is_trusted_at_once,
    restarts_are_never_forbidden,
    the_old_object_is_not_retired,
    a_save_is_named_before_its_manifest,
    the_step_comes_before_the_epoch,
    a_claim_is_shared,
    any_lift_lifts_any_hold,
    one_missing_answer_is_the_end,
    what_cannot_be_told_is_not_there,
    what_is_unusable_is_started_over,
    unknown_is_the_end,
    a_choice_is_lost,
    stops_are_forgotten,
    a_deleted_save_counts_as_whole,
    others_requeue_too,
    a_requeue_comes_before_its_intent,
    a_requeue_does_not_look_again,
    the_index_keeps_what_is_finished,
    the_index_never_has_it,
    delays_are_skipped,
    the_wall_clock_is_believed,
    an_end_that_was_asked_for_is_a_success,
    what_stays_unknown_is_gone_in_the_end,
    a_word_about_an_unknown_object_stops_nothing,
    a_stop_between_executions_is_passed_over,
    a_lost_node_is_a_preemption,
    a_failure_is_a_preemption,
    an_administrators_stop_is_a_preemption,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_found(mutation: Callable[[Patch], None], monkeypatch, record_property):
    # given a product that is broken in one place
    mutation(monkeypatch)
    # when it is simulated
    found = first_failure(range(SEEDS), supersedes=False)
    # then a check sees it
    assert found is not None, f"{SEEDS} seeds pass with {mutation.__name__}"
    record_property("seed and check", found)
