"""Supervisors that come and go, and persons who look in: each with its own record, clock and memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress

from prefect_dispatch.errors import DispatchError, Exists, LineageError, StoreError
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.model.facts import Fact, HoldLifted, LiftedBy, Resolution, StopRequested
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.advance import Advanced, Supervisor
from prefect_dispatch.supervisor.cessation import ask_about_holds
from prefect_dispatch.supervisor.choices import run_again, stop
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.drive import JobOver, JobSuperseded, drive
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.supervisor.superseding import Asked, decide
from prefect_dispatch.testing.simulator.loop import run_virtually
from prefect_dispatch.testing.simulator.parked_scheduler import ParkedScheduler
from prefect_dispatch.testing.simulator.parked_store import ParkedStore
from prefect_dispatch.testing.simulator.referee import ExecutionWatch, Referee, SupervisorWatch
from prefect_dispatch.testing.simulator.site import Site
from prefect_dispatch.testing.simulator.truth import Meant

LINEAGE = "digits"
LIKES = {Resolution.RUN_AGAIN: 12, Resolution.STOP: 1, Resolution.CONTINUE_FROM: 3, Resolution.FROM_SCRATCH: 3}
"""How persons like to resolve a hold."""
THINKS = (0.0, 0.0, 5.0, 60.0, 200.0)
"""Seconds that a person thinks about a hold, while others go on."""


class Office:
    """Where supervisors and persons work: one record, seen by each through its own connection.

    Args:
        referee: watches.
        store: the record's store.
    """

    def __init__(self, referee: Referee, store: MemoryStore) -> None:
        self.referee = referee
        self._store = store
        self._index = MemoryStore("memory://index")
        referee.truth.index = self._index.ledger("open")

    def record(self, actor: str, clock: Clock) -> tuple[Record, SupervisorWatch]:
        """A connection of an actor's own, with an id of its own."""
        stage = self.referee.stage
        writer = new_nonce()
        watch = SupervisorWatch(self.referee, actor, writer)
        store = ParkedStore(self._store, stage, watch, stage.setting.store_failure, stage.setting.lost_reply)
        return Record(store, self._index.ledger("open"), LINEAGE, clock, writer), watch

    def supervise(self, actor: str, clock: Clock, sees_root: bool, over: Callable[[], None]) -> None:
        """Be a supervisor until the job is over; what raises, ends it like a crash."""
        referee, stage = self.referee, self.referee.stage
        record, watch = self.record(actor, clock)
        scheduler = ParkedScheduler(referee.truth.scheduler, stage, watch)
        look = ParkedStore(referee.truth.root, stage, ExecutionWatch(referee, None, None), stage.setting.store_failure)
        view = RootView(LineageRoot(look)) if sees_root else None
        supervisor = Supervisor(record, scheduler, view, clock)
        # Some are of one generation, as flow runs are, and go when it is superseded; others look after any.
        of_one = stage.setting.supersedes > 0.0 and stage.random.random() < 0.5
        began = stage.kernel.now

        async def after_each(advanced: Advanced) -> None:
            nonlocal began
            referee.advanced(actor, advanced, began)
            began = stage.kernel.now

        async def work() -> None:
            nonlocal began, supervisor
            if of_one:
                supervisor = Supervisor(record, scheduler, view, clock, generation=record.refresh().generation)
            while True:
                began = stage.kernel.now
                happening = await drive(supervisor, carrier=None, after_each=after_each)
                if isinstance(happening, JobOver | JobSuperseded):
                    return
                await clock.sleep(supervisor.capabilities.poll_interval.total_seconds())

        try:
            run_virtually(stage.kernel, work)
        except DispatchError as error:
            stage.note(f"gives up: {type(error).__name__}: {error}")
            stage.happen("supervisor that gave up")
        over()

    def look_in(self, actor: str, clock: Clock) -> None:
        """Be a person: look in now and then, and lift holds or stop the job."""
        stage = self.referee.stage
        record, _ = self.record(actor, clock)
        while not stage.calm:
            stage.kernel.sleep(stage.random.expovariate(1 / stage.setting.person_every))
            if stage.calm:
                return
            try:
                state = record.refresh()
                supersedes = stage.setting.supersedes
                if supersedes > 0.0 and state.opened is not None and stage.random.random() < supersedes:
                    self._supersede(actor, record, state)
                elif state.opened is not None and state.finished is None:
                    self._decide(actor, record, state)
            except (DispatchError, LineageError) as error:
                stage.note(f"goes away: {error}")

    def signal(self, actor: str, clock: Clock) -> None:
        """Be a poller of the site's cessation signal: a new one each time, as far as it knows anything."""
        stage = self.referee.stage
        site = Site(stage, self.referee.truth)
        while not stage.calm:
            stage.kernel.sleep(stage.random.expovariate(3 / stage.setting.person_every))
            if stage.calm:
                return
            record, _ = self.record(actor, clock)

            async def poll(record: Record = record) -> None:
                for polled in await ask_about_holds([record], lambda state: site, clock):
                    if polled.trouble:
                        stage.note(f"goes away: {polled.trouble}")
                    elif polled.lifted_by is not None:
                        stage.happen(f"lifted by {polled.lifted_by}")

            run_virtually(stage.kernel, poll)

    def _decide(self, actor: str, record: Record, state: LineageState) -> None:
        stage, random = self.referee.stage, self.referee.stage.random
        if state.hold is not None:
            resolution = random.choices(tuple(LIKES), tuple(LIKES.values()))[0]
            hold = state.hold.opened.hold
            if state.hold.opened.state_unknown:
                stage.happen("person asked about an unknown state")
            stage.kernel.sleep(random.choice(THINKS))
            if resolution is Resolution.RUN_AGAIN:
                stage.happen("lift run_again")
                run_again(record, hold, who=actor)
                return
            if resolution is Resolution.STOP:
                stage.happen("lift stop")
                stop(record, hold, who=actor)
                return
            published = sorted(self.referee.truth.published)
            base = random.choice(published) if resolution is Resolution.CONTINUE_FROM and published else None
            if resolution is Resolution.CONTINUE_FROM and base is None:
                return
            stage.happen(f"lift {resolution}")
            lift = HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON, resolution=resolution, base=base, who=actor)
            self._append(record, lift)
        elif random.random() < 0.06:
            intent = random.choice(("suspend", "suspend", "suspend", "abandon"))
            stage.happen(f"stop requested: {intent}")
            asked = StopRequested(intent="abandon" if intent == "abandon" else "suspend", who=actor)
            self._append(record, asked)

    def supersede_finished(self, actor: str, clock: Clock) -> bool:
        """Begin the next generation of a finished lineage, as a schedule does; returns whether there is one."""
        stage = self.referee.stage
        if stage.setting.supersedes == 0.0 or stage.random.random() < 0.5:
            return False
        record, _ = self.record(actor, clock)
        with suppress(DispatchError):
            state = record.refresh()
            if state.finished is not None:
                self._supersede(actor, record, state)
        return self.referee.truth.state.finished is None

    def _supersede(self, actor: str, record: Record, state: LineageState) -> None:
        """Supersede the job as it was seen, thinking about it for a while, and once more where a store failed."""
        stage, random, truth = self.referee.stage, self.referee.stage.random, self.referee.truth
        assert state.opened is not None
        published = sorted(truth.published)
        resume = random.choice((None, None, "latest", "scratch", *published[-1:]))
        spec = JobSpec.read(
            {"store": {"root": "/runs"}, **random.choice((stage.setting.spec, stage.setting.next_spec))}, ""
        )
        job = ResolvedJob(spec=spec, workdir="/", root="/runs", record_root="/runs", scheduler=state.opened.scheduler)
        planned = plan(spec, truth.scheduler.capabilities, root_visible=stage.setting.root_visible)
        request = new_nonce()
        truth.meant[request] = Meant(state.generation, resume)
        stage.kernel.sleep(random.choice(THINKS))
        asked = Asked(actor, resume, "", request, state.generation)
        view = RootView(LineageRoot(truth.root))
        stage.note(f"supersedes generation {state.generation}, {resume or 'as it is'}")
        try:
            for last in (False, True):
                with nullcontext() if last else suppress(StoreError):
                    decide(record, job, planned, lambda job: {}, lambda state: view, asked)
                    stage.happen("supersession" if state.finished is None else "supersession of what is finished")
                    return
        except LineageError as error:
            stage.note(f"is refused: {error}")
            stage.happen("supersession that lost")

    def _append(self, record: Record, fact: Fact) -> None:
        """Append a person's word, whatever was appended meanwhile; the fold knows whether it still counts."""
        while True:
            with suppress(Exists):
                record.append(fact)
                return
            record.refresh()
