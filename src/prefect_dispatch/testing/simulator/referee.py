"""The referee: takes down what really happens, and has every check look at it."""

from __future__ import annotations

from prefect_dispatch.format.documents import decode
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Entry, Requeueing, Submitted, Submitting
from prefect_dispatch.model.fold import apply
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.stores.layout import CLAIMS, EXEC, HOMES, META, PUBLICATIONS, RESUME_DOCUMENT, STANDING
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.supervisor.advance import Advanced
from prefect_dispatch.testing.simulator.checks_advance import ON_ADVANCE, Took
from prefect_dispatch.testing.simulator.checks_decisions import ON_DECISION
from prefect_dispatch.testing.simulator.checks_generations import (
    ON_SUPERSESSION,
    g13_an_old_object_is_ended_for_good,
)
from prefect_dispatch.testing.simulator.checks_holds import ON_HOLD
from prefect_dispatch.testing.simulator.checks_record import ON_FACT, Appended
from prefect_dispatch.testing.simulator.checks_store import ON_PIN, ON_RUN, ON_TOUCH, Touched, read_save
from prefect_dispatch.testing.simulator.recount import Recount
from prefect_dispatch.testing.simulator.stage import Stage
from prefect_dispatch.testing.simulator.truth import Published, Ran, Truth

PATIENCE = 1.0
"""Seconds by which a call may begin after it was to be given up: clocks are read a moment apart."""


class Referee:
    """Takes down what happens in one simulation.

    Args:
        stage: where it happens.
        truth: what has happened so far.
    """

    def __init__(self, stage: Stage, truth: Truth) -> None:
        self.stage = stage
        self.truth = truth
        self._recount = Recount()

    def appended(self, actor: str, content: bytes) -> None:
        """A fact was appended."""
        stage, truth = self.stage, self.truth
        entry = Entry.decode(content, "the record")
        told = entry.fact.model_dump(mode="json", exclude={"kind", "spec", "plan"}, exclude_defaults=True)
        stage.note(f"   fact {entry.seq}: {entry.fact.kind} {told}")
        stage.happen(f"fact {entry.fact.kind}")
        appended = Appended(truth, entry, actor, stage.kernel.now, self._recount)
        for check in (*ON_SUPERSESSION, *ON_HOLD, *ON_FACT, *ON_DECISION):
            self._found(check.__name__, check(appended))
        truth.known[actor][entry.seq] = stage.moment
        truth.written_at[entry.seq] = stage.kernel.now
        truth.entries.append(entry)
        truth.states.append(apply(truth.state, entry))
        self._recount.take(entry)
        if isinstance(entry.fact, Submitting):
            bounds = truth.scheduler.capabilities
            limit = bounds.submit_bound + bounds.landing_bound
            truth.landing_due[entry.fact.token] = stage.kernel.now + limit.total_seconds()

    def advanced(self, actor: str, advanced: Advanced, began: float) -> None:
        """An advance has returned."""
        took = Took(self.truth, advanced, actor, began)
        for check in (*ON_ADVANCE, g13_an_old_object_is_ended_for_good):
            self._found(check.__name__, check(took))

    def ran(self, execution: Ran) -> None:
        """The processes of an execution began."""
        for check in ON_RUN:
            self._found(check.__name__, check(self.truth, execution))

    def computes(self, execution: Ran) -> None:
        """An execution goes on to start its program."""
        execution.programs += 1
        if execution.document.shared_checkpoint and execution.epoch.restart > 0:
            text = f"{execution.epoch} starts its program, and its checkpoint is shared"
            self._found("g10_no_restart_starts_a_program", text)
        if execution.programs > 1:
            self._found("g5_one_program_for_an_epoch", f"{execution.programs} programs run as {execution.epoch}")

    def touched(self, path: str, attempt: str | None, epoch: Epoch | None, content: bytes = b"") -> None:
        """A path of the root was created, written or deleted."""
        if path in (*STANDING, *HOMES):
            return  # Whoever makes the root ready makes what all have in common.
        touched = Touched(self.truth, path, attempt, epoch)
        for check in ON_TOUCH:
            self._found(check.__name__, check(touched))
        folder, _, rest = path.partition("/")
        if folder == PUBLICATIONS:
            publication = Publication.parse(rest)
            saved = read_save(self.truth, publication.path)
            self.truth.published.setdefault(rest, Published(publication, self.stage.moment, saved))
            self.stage.happen("publication")
        elif folder == CLAIMS and attempt is not None:
            self.truth.claims[Epoch.parse(rest)] = attempt
        elif folder == META and attempt is not None and rest == f"{attempt}/{RESUME_DOCUMENT}":
            self._pinned(attempt, content)
        elif folder in (EXEC, META):
            for published in self.truth.published.values():
                under = path == published.publication.path or path.startswith(f"{published.publication.path}/")
                if published.lost_at is None and under:
                    published.lost_at = self.stage.moment

    def _pinned(self, attempt: str, content: bytes) -> None:
        execution = self.truth.executions[attempt]
        execution.pin = Pin.decode(decode(content, "the pin"), "the pin")
        self.stage.happen("start from scratch" if execution.pin.publication is None else "resume")
        for check in ON_PIN:
            self._found(check.__name__, check(self.truth, execution, self.stage.moment))

    def returned(self, publication: Publication) -> None:
        """Publishing returned."""
        name = publication.name
        self.truth.returned.add(name)
        if name not in self.truth.published:
            self._found("g2_a_returned_publication_is_visible", f"{name} was returned and is not there")

    def _found(self, check: str, fault: str | None) -> None:
        if fault:
            self.stage.violate(check, fault)


class SupervisorWatch:
    """Watches one supervisor or person: what it reads of the record, appends to it and asks of the scheduler.

    Args:
        referee: takes it down.
        actor: who it is.
        writer: its random id.
    """

    def __init__(self, referee: Referee, actor: str, writer: str) -> None:
        self._referee = referee
        self._actor = actor
        self._writer = writer
        referee.truth.writers[writer] = actor

    def read(self, path: str) -> None:
        """A fact was read."""
        if path.startswith("record/"):
            self._referee.truth.known[self._actor].setdefault(int(path[7:27]), self._referee.stage.moment)

    def created(self, path: str, content: bytes) -> None:
        """A fact, or something else, was created."""
        if path.startswith("record/"):
            self._referee.appended(self._actor, content)

    def changed(self, path: str) -> None:
        """Something else changed."""

    def asks_to_submit(self, request: SubmissionRequest) -> None:
        """It calls submit."""
        referee, truth = self._referee, self._referee.truth
        token = request.token
        truth.submits[token].append(self._actor)
        referee.stage.happen("submit")
        intents = [entry for entry in truth.entries if isinstance(entry.fact, Submitting) and entry.fact.token == token]
        who = f"{self._actor} submits {request.name}"
        if not intents or intents[0].by != self._writer:
            referee.stage.violate("g5_only_its_author_submits", f"{who}, which it did not decide")
            return
        if len(truth.submits[token]) > 1:
            referee.stage.violate("g5_submitted_once", f"{who}, which was submitted before")
        limit = truth.scheduler.capabilities.submit_bound.total_seconds() + PATIENCE
        waited = referee.stage.kernel.now - truth.written_at[intents[0].seq]
        if waited > limit:
            text = f"{who} {waited:.0f} s after it was decided, when everybody takes the call for given up"
            referee.stage.violate("g5_no_submit_after_it_was_given_up", text)

    def will_land(self, token: str, after: float | None) -> None:
        """The scheduler has taken it."""
        if after is not None:
            self._referee.truth.landed.setdefault(token, self._referee.stage.kernel.now + after)

    def begins_query(self) -> None:
        """It asks about objects."""
        self._referee.truth.query_began[self._actor] = self._referee.stage.moment

    def cannot_tell(self, token: str) -> None:
        """The scheduler could not tell whether it knows a token."""
        self._referee.stage.happen("ambiguous answer")
        self._referee.truth.ambiguous[token] = self._referee.stage.kernel.now

    def stopped(self, object: ObjectRef) -> None:
        """Its stop has had its effect."""
        self._referee.truth.stopped.setdefault(object, self._referee.stage.kernel.now)
        self._referee.stage.happen("stop")

    def requeues(self, object: ObjectRef, expected_restart: int) -> None:
        """It calls requeue."""
        referee, truth = self._referee, self._referee.truth
        truth.requeues[object, expected_restart].append(self._actor)
        who = f"{self._actor} requeues {object} as r{expected_restart}"
        facts = [entry.fact for entry in truth.entries]
        numbers = {fact.n for fact in facts if isinstance(fact, Submitted) and fact.object == object}
        intents = [
            entry
            for entry in truth.entries
            if isinstance(entry.fact, Requeueing)
            and entry.fact.n in numbers
            and entry.fact.restart == expected_restart
            and entry.by == self._writer
        ]
        if not intents:
            referee.stage.violate("g5_only_its_author_requeues", f"{who}, which it did not decide")
            return
        if len(truth.requeues[object, expected_restart]) > 1:
            referee.stage.violate("g5_requeued_once", f"{who}, which was requeued before")
        asked_at = truth.query_began.get(self._actor, -1)
        if asked_at < truth.known[self._actor][intents[-1].seq]:
            referee.stage.violate("g5_requeued_after_observing_again", f"{who}, and has not looked since it decided so")


class ExecutionWatch:
    """Watches what one execution does to the checkpoint root.

    Args:
        referee: takes it down.
        attempt: the execution's; None for a supervisor, which changes nothing there.
        epoch: its epoch.
    """

    def __init__(self, referee: Referee, attempt: str | None, epoch: Epoch | None) -> None:
        self._referee = referee
        self._attempt = attempt
        self._epoch = epoch

    def read(self, path: str) -> None:
        """Reading is everybody's."""

    def created(self, path: str, content: bytes) -> None:
        """A name was created."""
        self._referee.touched(path, self._attempt, self._epoch, content)

    def changed(self, path: str) -> None:
        """A file or folder was changed."""
        self._referee.touched(path, self._attempt, self._epoch)
