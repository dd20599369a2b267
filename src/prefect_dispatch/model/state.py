"""The state of a lineage: one frozen value, folded from its facts and from nothing else."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Cessation,
    Ended,
    Finished,
    HoldLifted,
    HoldOpened,
    Opened,
    Outcome,
    Reopened,
    StopRequested,
)
from prefect_dispatch.model.observation import ObjectRef, ObjectState


class _State(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Landing(enum.StrEnum):
    """How far a submission got."""

    INTENDED = "intended"
    """Somebody was to call the scheduler; whether its object exists is not known."""
    LANDED = "landed"
    """Its object is known."""
    REFUSED = "refused"
    """The scheduler refused it for certain."""
    ABANDONED = "abandoned"
    """It never landed. Should it turn up all the same, it is stopped."""


class Execution(_State):
    """One execution as the record knows it.

    Attributes:
        restart: R.
        state: the scheduler's last word about it.
        since: when that word was recorded.
        seen_running: whether it was ever seen to run.
        started_at: when it began to run: by the scheduler's clock, else when it was first seen to.
        nodes: where it ran.
        ended: how it ended.
        ended_at: when that was recorded; None while it has not.
    """

    restart: int
    state: ObjectState
    since: AwareDatetime
    seen_running: bool = False
    started_at: AwareDatetime | None = None
    nodes: tuple[str, ...] = ()
    ended: Ended | None = None
    ended_at: AwareDatetime | None = None


class SubmissionState(_State):
    """One submission as the record knows it.

    Attributes:
        generation: G.
        n: N.
        token: by which its object is found.
        writer: the one process that may call the scheduler's submit.
        at: when the intent was recorded.
        give_up_at: when that call is given up at the latest.
        base: what it resumes from until something at or above the floor is published.
        floor: an epoch's number.
        restarts_allowed: whether the scheduler was told that it may restart the object.
        restarts_forbidden: whether it was told since that it may not.
        landing: how far it got.
        object: the scheduler's object, once known.
        executions: its executions, ascending.
        requeueing: the restart that was asked for.
        requeueing_at: when that intent was recorded.
        retiring: the restart whose end counts, once the object is being ended for good.
        retired: whether the object was seen to have ended for good.
        detail: why it was refused.
        settled_at: when it was refused or abandoned; an abandoned one that turned up keeps it.
    """

    generation: int
    n: int
    token: str
    writer: str
    at: AwareDatetime
    give_up_at: AwareDatetime
    base: str
    floor: int
    restarts_allowed: bool
    restarts_forbidden: bool = False
    landing: Landing = Landing.INTENDED
    object: ObjectRef | None = None
    executions: tuple[Execution, ...] = ()
    requeueing: int | None = None
    requeueing_at: AwareDatetime | None = None
    retiring: int | None = None
    retired: bool = False
    detail: str = ""
    settled_at: AwareDatetime | None = None

    @property
    def newest(self) -> Execution | None:
        """The execution with the greatest restart."""
        return self.executions[-1] if self.executions else None

    @property
    def deciding(self) -> Execution | None:
        """The execution whose end decides what comes next: the newest, less those that our own stop ended."""
        deciding = self.newest
        while deciding is not None and self.is_our_stop(deciding):
            deciding = next((each for each in reversed(self.executions) if each.restart < deciding.restart), None)
        return deciding

    def is_our_stop(self, execution: Execution) -> bool:
        """Whether an execution that was not to run any more was ended by our own stop.

        That is one that was restarted while the object was being retired, and any of an object that was given up and
        turned up when the job was held.
        """
        ended = execution.ended
        if self.retiring is None or ended is None or ended.cause is not Cause.STOPPED:
            return False
        return execution.restart > self.retiring or self.given_up

    @property
    def may_restart(self) -> bool:
        """Whether the scheduler may still restart the object by itself."""
        landed = self.landing is Landing.LANDED
        return landed and self.restarts_allowed and not self.restarts_forbidden and not self.retired

    @property
    def given_up(self) -> bool:
        """Whether it was once taken for one that never lands, though it may have turned up since."""
        return self.settled_at is not None and self.landing is not Landing.REFUSED

    @property
    def live(self) -> bool:
        """Whether the scheduler may still have something of it: a known object whose end is not recorded."""
        if self.landing is not Landing.LANDED or self.retired:
            return False
        return self.newest is None or self.newest.ended is None

    @property
    def unsettled(self) -> bool:
        """Whether an object of it may exist that is not known to have ended."""
        return self.landing is Landing.INTENDED or self.live

    @property
    def may_run(self) -> bool:
        """Whether anything of it may run, now or later: also by a restart that is the scheduler's own."""
        return self.unsettled or self.may_restart

    def epoch(self, restart: int) -> Epoch:
        """The epoch of one of its executions."""
        return Epoch(self.generation, self.n, restart)

    def attempt(self, restart: int) -> str:
        """The attempt of one of its executions."""
        return attempt_of(self.token, restart)


class Hold(_State):
    """An open hold.

    Attributes:
        opened: the fact that opened it.
        at: when.
        cessation: the site's last recorded answer about the processes behind it.
        answered_at: when that was recorded.
        due_at: when somebody last saw that its time is over.
    """

    opened: HoldOpened
    at: AwareDatetime
    cessation: Cessation | None = None
    answered_at: AwareDatetime | None = None
    due_at: AwareDatetime | None = None

    @property
    def ceased(self) -> bool:
        """Whether the site has said that the processes behind it are gone; they do not come back."""
        return self.cessation is not None and self.cessation.answer == "ceased"


class Parent(_State):
    """The generation whose place the current one took.

    Attributes:
        generation: which.
        outcome: how it had ended; None where it was open.
        shared_checkpoint: whether something of it may write into the place that the current one writes into, until a
            person or the site says that it does not.
    """

    generation: int
    outcome: Outcome | None = None
    shared_checkpoint: bool = False


class LineageState(_State):
    """Everything that follows from a record.

    Attributes:
        seq: the place of the last fact; 0 for an empty record.
        at: when the last fact was recorded.
        latest_at: the greatest time at which a fact was recorded since the generation began.
        generation: the current generation.
        opened: the fact that opened it; None for an empty record.
        opened_at: when.
        carried_by: the flow run that carries the current generation; None while none has said so.
        submissions: of the current generation, ascending; the last one is the one that counts.
        parent: the generation whose place the current one took; None for the first one.
        obligations: submissions of earlier generations that may still have an object, ascending, and the last one that
            was made, whatever became of it.
        spent: how often each cause ended an execution of this generation.
        published: publications of this generation, when they were last counted.
        fruitless: executions in a row that ended without a new one.
        not_before: the only delay there is.
        delay: how long it is, from the end that it follows.
        base: what the next submission resumes from until something at or above the floor is published.
        floor: an epoch's number.
        hold: the open hold.
        lifted: how the last hold was lifted; until the next submission or requeue. Till then a person's word takes the
            place of a signal's.
        lifted_hold: that hold.
        stop: what was asked for; until it is done.
        finished: how the generation ended.
        finished_at: when.
        reopened: how it was taken up again after its end; until the hold that comes first.
    """

    seq: int = 0
    at: AwareDatetime | None = None
    latest_at: AwareDatetime | None = None
    generation: int = 0
    opened: Opened | None = None
    opened_at: AwareDatetime | None = None
    carried_by: str | None = None
    submissions: tuple[SubmissionState, ...] = ()
    parent: Parent | None = None
    obligations: tuple[SubmissionState, ...] = ()
    spent: dict[Cause, int] = Field(default_factory=dict)
    published: int = 0
    fruitless: int = 0
    not_before: AwareDatetime | None = None
    delay: timedelta = timedelta(0)
    base: str = "latest"
    floor: int = 0
    hold: Hold | None = None
    lifted: HoldLifted | None = None
    lifted_hold: HoldOpened | None = None
    stop: StopRequested | None = None
    finished: Finished | None = None
    finished_at: AwareDatetime | None = None
    reopened: Reopened | None = None

    @property
    def newest(self) -> SubmissionState | None:
        """The submission that counts."""
        return self.submissions[-1] if self.submissions else None

    @property
    def stale(self) -> Iterator[SubmissionState]:
        """Every submission but the one that counts."""
        yield from self.obligations
        yield from self.submissions[:-1]

    @property
    def executions(self) -> Iterator[tuple[SubmissionState, Execution]]:
        """All executions of the current generation, in order."""
        for submission in self.submissions:
            for execution in submission.executions:
                yield submission, execution

    @property
    def open(self) -> bool:
        """Whether the lineage was opened and is not finished."""
        return self.opened is not None and self.finished is None

    def submission_of(self, object: ObjectRef) -> SubmissionState | None:
        """Look up the submission that an object is of."""
        return next((each for each in (*self.submissions, *self.obligations) if each.object == object), None)

    def submission(self, generation: int, n: int) -> SubmissionState | None:
        """Look up a submission of any generation that still counts."""
        for submission in (*self.submissions, *self.obligations):
            if (submission.generation, submission.n) == (generation, n):
                return submission
        return None
