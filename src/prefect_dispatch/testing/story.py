"""A record in memory, told fact by fact: for tests of what follows from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Ended,
    Entry,
    Fact,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Observed,
    Opened,
    Resolution,
    Retired,
    Retiring,
    Submitted,
    Submitting,
)
from prefect_dispatch.model.fold import apply
from prefect_dispatch.model.next_step import next_step
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState, SubmissionState
from prefect_dispatch.model.steps import Append, Held, Retire, Step, Submit
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Story:
    """One lineage's record, its fold, and a clock that the test moves.

    Args:
        spec: fields of the job's spec, over those of a plain one.
        capabilities: what its scheduler can do.
        root_visible: whether its supervisor sees the checkpoint root.
        opened: whether it begins with ``opened``.

    Attributes:
        entries: the record so far.
        state: what it folds to.
        now: the clock.

    Example:
        >>> story = Story({"recovery": {"failed": {"action": "hold"}}})
        >>> story.step()
        Submit(n=1, base='latest', floor=0, restarts_allowed=True)
    """

    def __init__(
        self,
        spec: Mapping[str, Any] | None = None,
        capabilities: Capabilities = SCRIPTED,
        *,
        root_visible: bool = True,
        opened: bool = True,
    ) -> None:
        plain = {"lineage": "digits", "command": ["python", "train.py"]}
        self.spec = JobSpec.model_validate({**plain, **(spec or {})})
        self.capabilities = capabilities
        self.plan = plan(self.spec, capabilities, root_visible=root_visible)
        self.entries: list[Entry] = []
        self.state = LineageState()
        self.now = BEGIN
        if opened:
            self.tell(self.opening())

    def opening(self, base: str = "latest", floor: int = 0) -> Opened:
        """The fact that opens a generation of the job."""
        return Opened(
            spec=self.spec,
            plan=self.plan,
            identity=self.spec.identity_digests(),
            owner="tester",
            root="/runs",
            record_root="/runs",
            workdir="/work",
            scheduler={"type": "local"},
            base=base,
            floor=floor,
        )

    def tell(self, *facts: Fact, generation: int | None = None) -> LineageState:
        """Append facts at the present time, to the current generation unless another is given."""
        for fact in facts:
            of = self.state.generation if generation is None else generation
            seq = self.state.seq + 1
            entry = Entry(seq=seq, at=self.now, by="writer", nonce=f"{seq:016x}", generation=of, fact=fact)
            self.entries.append(entry)
            self.state = apply(self.state, entry)
        return self.state

    def later(self, time: timedelta) -> None:
        """Move the clock on."""
        self.now += time

    def step(self) -> Step:
        """What is to be done now."""
        return next_step(self.state, self.now, self.capabilities)

    def intend(self) -> Submit:
        """Write down the intent of the submission that is due."""
        step = self.step()
        assert isinstance(step, Submit), step
        self.tell(
            Submitting(
                n=step.n,
                token=token_of(step.n, self.state.generation),
                writer="writer",
                give_up_at=self.now + self.capabilities.submit_bound,
                base=step.base,
                floor=step.floor,
                restarts_allowed=step.restarts_allowed,
            )
        )
        return step

    def submit(self) -> Submit:
        """Make the submission that is due, and have it land."""
        step = self.intend()
        self.tell(Submitted(n=step.n, object=object_of(step.n, self.state.generation)))
        return step

    @property
    def newest(self) -> SubmissionState:
        """The submission that counts."""
        assert self.state.newest is not None
        return self.state.newest

    def retire(self) -> None:
        """Retire the newest submission's object, as is due."""
        step = self.step()
        assert isinstance(step, Retire), step
        assert self.newest.newest is not None
        self.tell(Retiring(n=self.newest.n, restart=self.newest.newest.restart), Retired(n=self.newest.n))

    def hold(self) -> HoldOpened:
        """Open the hold that is due."""
        step = self.step()
        assert isinstance(step, Append) and isinstance(step.fact, HoldOpened), step
        self.tell(step.fact, generation=step.generation)
        assert isinstance(self.step(), Held)
        return step.fact

    def lift(self, resolution: Resolution = Resolution.RUN_AGAIN, base: str | None = None) -> LineageState:
        """Lift the open hold in a person's name."""
        assert self.state.hold is not None
        hold = self.state.hold.opened.hold
        return self.tell(HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=resolution, base=base, who="ops"))

    def run(self, n: int = 1, restart: int = 0) -> LineageState:
        """Have an execution seen running."""
        return self.tell(Observed(n=n, restart=restart, state=ObjectState.RUNNING, nodes=("node1",)))

    def end(
        self, cause: Cause, n: int = 1, restart: int = 0, code: int | None = None, published: int | None = None
    ) -> LineageState:
        """Have an execution end."""
        exit_code = Exit(code=code) if code is not None else None
        return self.tell(Ended(n=n, restart=restart, cause=cause, exit=exit_code, published=published))


def token_of(n: int, generation: int = 0) -> str:
    """A token that tells a submission from all others of a story."""
    number, letters = generation * 1000 + n, ""
    for _ in range(16):
        number, place = divmod(number, 26)
        letters = chr(ord("a") + place) + letters
    return letters


def object_of(n: int, generation: int = 0) -> ObjectRef:
    """The object of a submission of a story."""
    return ObjectRef(scheduler="scripted", id=f"{generation}-{n}", token=token_of(n, generation))
