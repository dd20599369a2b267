"""The truth: what really happened, whoever was told of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.submission import Submission
from prefect_dispatch.model.facts import Entry, HoldLifted, HoldOpened, Resolution
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.stores.port import Ledger
from prefect_dispatch.testing.memory_object import MemoryObject
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler


@dataclass
class Published:
    """One publication.

    Attributes:
        publication: its name.
        at: the moment at which it was created.
        content: the files of its save at that moment, by path.
        lost_at: the moment at which a file of it was first changed or deleted; None while it is whole.
    """

    publication: Publication
    at: int
    content: dict[str, bytes]
    lost_at: int | None = None


@dataclass
class Ran:
    """One execution's processes that began.

    Attributes:
        attempt: its attempt.
        epoch: its epoch.
        document: what it was handed.
        began: when its processes began, in seconds since the beginning.
        pin_began: the moment at which it began to decide what to resume from.
        pin: what it decided.
        programs: how many programs were started for it.
        completed: whether its program made all its steps.
    """

    attempt: str
    epoch: Epoch
    document: Submission
    began: float
    pin_began: int | None = None
    pin: Pin | None = None
    programs: int = 0
    completed: bool = False


@dataclass(frozen=True)
class Meant:
    """What somebody wanted who superseded a job: which generation, and from where its successor goes on."""

    generation: int
    resume: str | None


@dataclass
class Truth:
    """What really happened in one simulation.

    Attributes:
        scheduler: the scheduler, asked past all that goes wrong on the way to it.
        root: the checkpoint root, likewise.
        entries: the record.
        states: what each prefix of it folds to; the empty one first.
        written_at: when each entry was appended, by its place.
        known: for each actor and each entry's place, the moment at which it first knew of it.
        query_began: for each actor, the moment at which its last query began.
        agreed: for each actor, up to which fact its fold was found to be right.
        writers: for each writer's random id, the actor.
        submits: for each token, who called submit.
        landing_due: for each token, until when its object may be seen for the first time by every bound.
        landed: for each token, when its object is there for the first time.
        ambiguous: for each token, when the scheduler last could not tell whether it knows it.
        stopped: for each object, when a stop of it first had its effect.
        published: publications by name.
        returned: names whose publishing returned.
        claims: attempts by epoch.
        executions: executions by attempt.
        clocks_agree: whether all wall clocks were within the scheduler's bound all the time.
        index: the ledger of open lineages; None as long as nobody has opened an office.
        requeues: for each object and restart, who called requeue.
        gone: attempts of which the site has said that nothing lives.
        meant: for each request to supersede, what was wanted.
    """

    scheduler: MemoryScheduler
    root: MemoryStore
    entries: list[Entry] = field(default_factory=list)
    states: list[LineageState] = field(default_factory=lambda: [LineageState()])
    written_at: dict[int, float] = field(default_factory=dict)
    known: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    query_began: dict[str, int] = field(default_factory=dict)
    agreed: dict[str, int] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    submits: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    landing_due: dict[str, float] = field(default_factory=dict)
    landed: dict[str, float] = field(default_factory=dict)
    ambiguous: dict[str, float] = field(default_factory=dict)
    stopped: dict[ObjectRef, float] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    returned: set[str] = field(default_factory=set)
    claims: dict[Epoch, str] = field(default_factory=dict)
    executions: dict[str, Ran] = field(default_factory=dict)
    clocks_agree: bool = True
    index: Ledger | None = None
    requeues: dict[tuple[ObjectRef, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    gone: set[str] = field(default_factory=set)
    meant: dict[str, Meant] = field(default_factory=dict)

    @property
    def state(self) -> LineageState:
        """What the whole record folds to."""
        return self.states[-1]

    def is_in_index(self) -> bool:
        """Whether the index of open lineages has an entry."""
        return self.index is None or bool(self.index.names())

    def object(self, reference: ObjectRef) -> MemoryObject | None:
        """An object, whether the scheduler has forgotten it or not; None where it has not landed yet."""
        return next((each for each in self.scheduler.objects(reference.token) if each.ref == reference), None)

    def has_ended(self, reference: ObjectRef, restart: int) -> bool:
        """Whether a restart of an object is over, as the scheduler sees it."""
        found = self.object(reference)
        return found is not None and (restart < found.restart or (restart == found.restart and found.is_over))

    def was_noticed(self, reference: ObjectRef, restart: int) -> bool:
        """Whether the processes of a restart of an object were asked to end by themselves."""
        return any(
            each.object == reference and each.attempt == attempt_of(reference.token, restart) and each.noticed_at
            for each in self.scheduler.processes.values()
        )

    def was_given_up(self, reference: ObjectRef) -> bool:
        """Whether a person has answered for an object whose state was unknown."""
        facts = [entry.fact for entry in self.entries]
        asked = {
            fact.hold
            for fact in facts
            if isinstance(fact, HoldOpened) and fact.state_unknown and fact.object == reference
        }
        return any(isinstance(fact, HoldLifted) and fact.hold in asked for fact in facts)

    def landed_late(self, token: str) -> bool:
        """Whether an object came after every bound, so that nobody had to wait for it."""
        return token in self.landed and self.landed[token] > self.landing_due.get(token, 0.0)

    def a_person_accounts_for(self, token: str) -> bool:
        """Whether the scheduler could not tell of a submission, and a person answered for it in its place.

        A person's stop is no such answer as long as the object may be on its way: a stop reaches that one too.
        """
        facts = [entry.fact for entry in self.entries]
        asked = {fact.hold for fact in facts if isinstance(fact, HoldOpened) and fact.token == token}
        answers = [fact.resolution for fact in facts if isinstance(fact, HoldLifted) and fact.hold in asked]
        in_the_end = self.ambiguous.get(token, -1.0) >= self.landing_due.get(token, 0.0)
        return any(answer is not Resolution.STOP or in_the_end for answer in answers)
