"""The facts of a record: what happened to a lineage, each told once and never changed."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from prefect_dispatch.errors import MalformedDocument, ReadOnlyLineage, UnknownFormat
from prefect_dispatch.format.documents import FORMAT, decode, encode, field
from prefect_dispatch.format.epoch import MAX_EPOCH, MAX_GENERATION, MAX_RESTART, MAX_SUBMISSION
from prefect_dispatch.format.printable import shorten
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.model.spec import JobSpec


class Outcome(enum.StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    """Its program exited 0."""
    FAILED = "failed"
    """A rule said to fail."""
    STOPPED = "stopped"
    """A person stopped it."""
    DEADLINE = "deadline"
    """Its total deadline passed."""
    SUPERSEDED = "superseded"
    """A newer generation took its place."""
    HOLD_EXPIRED = "hold_expired"
    """A hold was not lifted in time; it can be reopened."""


class Resolution(enum.StrEnum):
    """What a lifted hold leads to."""

    RUN_AGAIN = "run_again"
    """The rule that the hold stood for applies; where there was none, the job is submitted again."""
    STOP = "stop"
    """The job ends as stopped."""
    CONTINUE_FROM = "continue_from"
    """It goes on from a named publication."""
    FROM_SCRATCH = "from_scratch"
    """It starts anew."""
    EXPIRE = "expire"
    """The job ends as ``hold_expired``. By expiry alone."""


class LiftedBy(enum.StrEnum):
    """Who or what lifted a hold."""

    PERSON = "person"
    """Until the next submission their word takes the place of a signal's, and of an expiry."""
    SIGNAL = "signal"
    """The site says that the processes behind it are gone. Only for a hold that says ``signal_may_lift``."""
    EXPIRY = "expiry"
    """Nobody answered in time. Only for a hold that has an ``until``."""


def _in_our_time(at: datetime) -> datetime:
    if at.year > LAST_YEAR:
        raise ValueError(f"{at} is after the year {LAST_YEAR}")
    return at


def _resumable(base: str) -> str:
    try:
        ResumeChoice.decode(base, 0, "the fact")
    except MalformedDocument as error:
        raise ValueError(str(error)) from None
    return base


LAST_YEAR = 9000
"""No clock shows more; so a delay can be added to any time of a record."""

Moment = Annotated[AwareDatetime, AfterValidator(_in_our_time)]
GenerationNumber = Annotated[int, Field(ge=0, le=MAX_GENERATION)]
SubmissionNumber = Annotated[int, Field(ge=1, le=MAX_SUBMISSION)]
RestartNumber = Annotated[int, Field(ge=0, le=MAX_RESTART)]
EpochNumber = Annotated[int, Field(ge=0, le=MAX_EPOCH)]
Token = Annotated[str, Field(pattern=r"^[a-z2-7]{16}$")]
Base = Annotated[str, AfterValidator(_resumable)]


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Opened(_Fact):
    """A generation began: all that is needed to take it up without any block.

    That of a later generation is the supersession itself, all of it: there is no other fact to be written, so of two at
    once one wins, and no crash leaves half of it. ``parent`` is the generation whose place it takes. ``request`` is by
    whom it was asked for, so that who asks again after a crash finds that it is done.
    """

    kind: Literal["opened"] = "opened"
    spec: JobSpec
    plan: Plan
    identity: dict[str, str]
    owner: str
    root: str
    record_root: str
    workdir: str
    scheduler: dict[str, Any]
    root_prepared: bool = False
    base: Base = "latest"
    floor: EpochNumber = 0
    parent: GenerationNumber | None = None
    request: str = ""
    note: str = ""


class CarriedBy(_Fact):
    """A flow run carries the generation from here on, or a process that goes on without Prefect; the last one wins."""

    kind: Literal["carried_by"] = "carried_by"
    flow_run: str


class Submitting(_Fact):
    """The intent to submit. Only its writer calls the scheduler, once, and gives the call up at ``give_up_at``."""

    kind: Literal["submitting"] = "submitting"
    n: SubmissionNumber
    token: Token
    writer: str
    give_up_at: Moment
    base: Base
    floor: EpochNumber
    restarts_allowed: bool


class Submitted(_Fact):
    """The scheduler's object of a submission is known."""

    kind: Literal["submitted"] = "submitted"
    n: SubmissionNumber
    object: ObjectRef


class SubmitRefused(_Fact):
    """The scheduler refused a submission for certain."""

    kind: Literal["submit_refused"] = "submit_refused"
    n: SubmissionNumber
    detail: str


class Abandoned(_Fact):
    """A submission never landed, as far as a full answer after every bound can tell."""

    kind: Literal["abandoned"] = "abandoned"
    n: SubmissionNumber


class RestartsForbidden(_Fact):
    """The scheduler was told not to restart the object of a submission any more."""

    kind: Literal["restarts_forbidden"] = "restarts_forbidden"
    n: SubmissionNumber


class Retiring(_Fact):
    """The intent to forbid restarts and ask for a stop, since restart ``restart`` was the last one to count.

    What the scheduler may have restarted meanwhile ends by our own stop, not by a person's.
    """

    kind: Literal["retiring"] = "retiring"
    n: SubmissionNumber
    restart: RestartNumber


class Retired(_Fact):
    """After restarts were forbidden and a stop was asked, the object was seen to have ended for good."""

    kind: Literal["retired"] = "retired"
    n: SubmissionNumber


class Requeueing(_Fact):
    """The intent to have the same object run again as restart ``restart``."""

    kind: Literal["requeueing"] = "requeueing"
    n: SubmissionNumber
    restart: RestartNumber


class Observed(_Fact):
    """What the scheduler said of an object changed."""

    kind: Literal["observed"] = "observed"
    n: SubmissionNumber
    restart: RestartNumber
    state: ObjectState
    nodes: tuple[str, ...] = ()
    started_at: Moment | None = None
    evidence: str = ""


class Ended(_Fact):
    """An execution ended, as the scheduler says it.

    ``published`` counts the generation's publications by then; None where the root cannot be seen.
    """

    kind: Literal["ended"] = "ended"
    n: SubmissionNumber
    restart: RestartNumber
    cause: Cause
    exit: Exit | None = None
    nodes: tuple[str, ...] = ()
    ended_at: Moment | None = None
    published: Annotated[int, Field(ge=0)] | None = None
    detail: str = ""


class HoldOpened(_Fact):
    """The job waits for a person, or for what may stand in for one.

    ``stands_for`` is the action that the hold stands in for, because of a shared checkpoint or of a spent budget.
    ``token`` names a submission that nobody can account for; lifting the hold takes it for abandoned. With
    ``state_unknown`` nobody can tell what became of ``object``; lifting the hold gives it up, if that is still so. At
    ``until`` it may expire; without one it waits for ever.
    """

    kind: Literal["hold_opened"] = "hold_opened"
    hold: str
    why: str
    cause: Cause | None = None
    stands_for: Action | None = None
    n: SubmissionNumber | None = None
    restart: RestartNumber | None = None
    object: ObjectRef | None = None
    token: str | None = None
    state_unknown: bool = False
    until: Moment | None = None
    signal_may_lift: bool = False

    @property
    def is_unaccounted(self) -> bool:
        """Whether it is over what nobody can account for, so that something may still run."""
        return self.state_unknown or self.token is not None


class Cessation(_Fact):
    """A site's answer about the processes behind a hold."""

    kind: Literal["cessation"] = "cessation"
    hold: str
    object: ObjectRef
    answer: Literal["ceased", "running", "unknown"]
    detail: str = ""


class HoldDue(_Fact):
    """Somebody saw that the time of a hold is over. It expires when that is seen once more, a bound later."""

    kind: Literal["hold_due"] = "hold_due"
    hold: str


class HoldLifted(_Fact):
    """A hold ended."""

    kind: Literal["hold_lifted"] = "hold_lifted"
    hold: str
    lifted_by: LiftedBy
    resolution: Resolution
    base: Base | None = None
    who: str = ""
    note: str = ""


class StopRequested(_Fact):
    """The job is to end (``abandon``), or to save and wait (``suspend``)."""

    kind: Literal["stop_requested"] = "stop_requested"
    intent: Literal["abandon", "suspend"]
    who: str = ""
    note: str = ""


class Superseded(_Fact):
    """A newer generation takes this one's place. Read and never written: the newer one's ``opened`` says all."""

    kind: Literal["superseded"] = "superseded"
    by_generation: GenerationNumber


class Finished(_Fact):
    """The generation is over, and nothing of it is still on its way."""

    kind: Literal["finished"] = "finished"
    outcome: Outcome
    detail: str = ""
    final_save: str | None = None
    produced_by: str | None = None
    resumed_from: str | None = None


class Reopened(_Fact):
    """A person took a finished generation up again. A hold comes first, and nothing runs before a person's choice.

    ``after`` is the outcome that this takes back.
    """

    kind: Literal["reopened"] = "reopened"
    who: str = ""
    after: Outcome | None = None
    note: str = ""


Fact = Annotated[
    Opened
    | CarriedBy
    | Submitting
    | Submitted
    | SubmitRefused
    | Abandoned
    | RestartsForbidden
    | Retiring
    | Retired
    | Requeueing
    | Observed
    | Ended
    | HoldOpened
    | Cessation
    | HoldDue
    | HoldLifted
    | StopRequested
    | Superseded
    | Finished
    | Reopened,
    Field(discriminator="kind"),
]
_FACTS: TypeAdapter[Fact] = TypeAdapter(Fact)
_STAMP = ("format", "seq", "at", "by", "nonce", "generation")


class Entry(BaseModel):
    """One fact with its stamp: where in the record it stands, when and by whom it was written.

    Attributes:
        seq: its place, from 1.
        at: the writer's clock.
        by: the writer's random id.
        nonce: by which the writer recognises this entry after a lost reply.
        generation: the generation that it belongs to.
        fact: what happened.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: Annotated[int, Field(ge=1)]
    at: Moment
    by: str
    nonce: str
    generation: GenerationNumber
    fact: Fact

    def document(self) -> dict[str, Any]:
        """Stamp and fact as one flat JSON object."""
        stamp = self.model_dump(mode="json", exclude={"fact"})
        return {"format": FORMAT, **stamp, **self.fact.model_dump(mode="json")}

    def encode(self) -> bytes:
        """Write it as the record stores it."""
        return encode(self.document())

    @classmethod
    def decode(cls, data: bytes, what: str) -> Entry:
        """Read a stored entry.

        Raises:
            ReadOnlyLineage: its kind or format is one that this version does not know.
            MalformedDocument: it is no fact.
        """
        try:
            document = decode(data, what)
        except UnknownFormat as error:
            raise ReadOnlyLineage(str(error)) from None
        kind = field(document, "kind", str, what)
        if kind not in KINDS:
            raise ReadOnlyLineage(
                f"{what} is a fact of kind {kind!r}, which this version does not know: update prefect-dispatch"
            )
        body = {name: value for name, value in document.items() if name not in _STAMP}
        stamp = {name: document.get(name) for name in _STAMP if name != "format"}
        try:
            return cls.model_validate({**stamp, "fact": body})
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in fault["loc"] if part not in ("fact", kind))
            value = shorten(fault["input"])
            raise MalformedDocument(f"{what} is not a fact: {place} = {value}: {fault['msg']}; restore it") from None


KINDS = frozenset(model.model_fields["kind"].default for model in get_args(get_args(Fact)[0]))
"""The kinds of facts of this version."""
