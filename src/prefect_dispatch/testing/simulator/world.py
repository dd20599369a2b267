"""The world: what happens to objects, nodes, clocks and supervisors while nobody asks for it."""

from __future__ import annotations

from collections.abc import Callable

from prefect_dispatch.errors import Ambiguous, SchedulerError
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.testing.memory_object import MemoryObject
from prefect_dispatch.testing.simulator.clocks import BEGIN, SkewedClock
from prefect_dispatch.testing.simulator.execution import Execution
from prefect_dispatch.testing.simulator.kernel import Actor
from prefect_dispatch.testing.simulator.referee import Referee
from prefect_dispatch.testing.simulator.supervisors import Office
from prefect_dispatch.testing.simulator.truth import Ran

TICKS = (2.0, 10.0, 20.0)
"""Seconds between two looks at which processes the cluster has begun and ended."""


class World:
    """Lets processes begin and end as the cluster says, and things go wrong.

    Args:
        referee: watches.
        office: where supervisors work.
    """

    def __init__(self, referee: Referee, office: Office) -> None:
        self._referee = referee
        self._stage = referee.stage
        self._scheduler = referee.truth.scheduler
        self._office = office
        self._processes: dict[str, Actor] = {}
        self._supervisors: dict[str, Actor] = {}
        self._clocks: list[SkewedClock] = []
        self._born = 0

    def clock(self) -> SkewedClock:
        """Another host's clock."""
        random, skew = self._stage.random, self._stage.setting.skew
        clock = SkewedClock(self._stage.kernel, random.uniform(-skew / 2, skew / 2), random.uniform(0, 1e6))
        self._clocks.append(clock)
        return clock

    def add_supervisor(self, place: int, clock: SkewedClock, sees_root: bool, after: float = 0.0) -> None:
        """Let a supervisor begin; another one takes its place when it dies."""
        self._born += 1
        name = f"supervisor-{place}.{self._born}"

        def main() -> None:
            try:
                self._office.supervise(name, clock, sees_root, lambda: None)
            finally:
                self._supervisors.pop(name, None)
                if not self._stage.kernel.over and self._referee.truth.state.finished is None:
                    after = 5.0 if self._stage.calm else self._stage.random.choice((1.0, 60.0, 300.0))
                    self.add_supervisor(place, clock, sees_root, after)

        self._supervisors[name] = self._stage.kernel.spawn(name, main, after)

    @property
    def is_deserted(self) -> bool:
        """Whether no supervisor is there any more: the last ones went when the job was finished."""
        return not self._supervisors

    def turn(self) -> None:
        """Be the cluster: begin and end processes, for as long as the simulation goes on."""
        while True:
            self._stage.kernel.sleep(self._stage.random.choice(TICKS))
            living = self._scheduler.living()
            for attempt, actor in list(self._processes.items()):
                if attempt not in living or not actor.alive:
                    if actor.alive:
                        self._stage.happen("process killed")
                        self._stage.note(f"the processes of {attempt} are killed")
                    self._stage.kernel.kill(actor)
                    del self._processes[attempt]
            for attempt, processes in list(self._scheduler.processes.items()):
                if attempt not in self._referee.truth.executions:
                    self._begin(attempt, (processes.began_at - BEGIN).total_seconds(), attempt in living)

    def _begin(self, attempt: str, began: float, lives: bool) -> None:
        token, restart = split_attempt(attempt)
        document = self._scheduler.requests[token].document
        ran = Ran(attempt, document.epoch(restart), document, began)
        self._referee.truth.executions[attempt] = ran
        self._stage.note(f"{ran.epoch} begins as {attempt}{'' if lives else ', and is gone already'}")
        self._stage.happen("execution")
        self._referee.ran(ran)
        if lives:
            self._spawn(ran, attempt)
            if self._stage.chance(0.03):
                self._stage.happen("duplicate execution")
                self._spawn(ran, f"{attempt}-again")

    def _spawn(self, ran: Ran, name: str) -> None:
        execution = Execution(self._referee, ran, lambda: self._noticed(ran), lambda code: self._exit(ran, code))
        actor = self._stage.kernel.spawn(f"{ran.epoch}", execution.main)
        if name == ran.attempt:
            self._processes[ran.attempt] = actor

    def _noticed(self, ran: Ran) -> bool:
        return self._scheduler.processes[ran.attempt].noticed_at is not None

    def _exit(self, ran: Ran, code: int) -> None:
        """The wrapper of an execution has exited."""
        current = self._current(ran)
        processes = self._scheduler.processes.get(ran.attempt)
        if current is not None and processes is not None and processes.ended_at is None:
            self._scheduler.exit(current.ref, code)

    def _current(self, ran: Ran) -> MemoryObject | None:
        states = (ObjectState.RUNNING, ObjectState.ENDING)
        objects = self._scheduler.objects(ran.document.token)
        return next((each for each in objects if each.attempt == ran.attempt and each.state in states), None)

    def happen(self) -> None:
        """Let things go wrong until it is calm."""
        stage = self._stage
        events: tuple[Callable[[], str | None], ...] = (
            *(self._preempt,) * 6,
            self._lose_node,
            self._crash,
            self._crash,
            self._begin_outage,
            self._speak_unknown,
            self._lose_accounts,
            self._purge,
            self._step_clock,
            self._fail,
            self._fail,
            self._stop_by_admin,
            self._shut_down,
        )
        while not stage.calm:
            stage.kernel.sleep(stage.random.expovariate(1 / stage.setting.event_every))
            if not stage.calm:
                text = stage.random.choice(events)()
                if text is not None:
                    stage.note(text)

    def calm_down(self) -> None:
        """Let faults end."""
        self._stage.calm = True
        self._scheduler.outage = self._scheduler.observe_error = None
        self._scheduler.unknown.clear()
        self._scheduler.find_errors.clear()
        for number in range(1, self._stage.setting.slots + 1):
            self._scheduler.heal(f"node-{number}")

    def _one(self, *states: ObjectState) -> MemoryObject | None:
        found = [each for each in self._scheduler.objects() if each.state in states and not each.purged]
        return self._stage.random.choice(found) if found else None

    def _preempt(self) -> str | None:
        found = self._one(ObjectState.RUNNING)
        if found is None:
            return None
        self._stage.happen("preemption")
        self._scheduler.preempt(found.ref)
        return f"{found.ref} r{found.restart} is preempted"

    def _lose_node(self) -> str | None:
        node = f"node-{self._stage.random.randint(1, self._stage.setting.slots)}"
        self._stage.happen("lost node")
        self._scheduler.lose_node(node)

        def come_back() -> None:
            self._scheduler.heal(node)
            self._stage.note(f"{node} is back")

        self._stage.kernel.spawn("repair", come_back, self._stage.random.choice((30.0, 120.0, 500.0)))
        return f"{node} is cut off"

    def _crash(self) -> str | None:
        living = [name for name, actor in self._supervisors.items() if actor.alive and actor.thread is not None]
        if not living:
            return None
        name = self._stage.random.choice(living)
        self._stage.happen("crash of a supervisor")
        self._stage.kernel.kill(self._supervisors[name])
        return f"{name} is killed"

    def _begin_outage(self) -> str | None:
        """Let the scheduler be away, for everybody or for queries alone; it comes back by itself."""
        scheduler, stage = self._scheduler, self._stage
        stage.happen("outage of the scheduler")

        def come_back() -> None:
            scheduler.outage = scheduler.observe_error = None
            stage.note("the scheduler is back")

        stage.kernel.spawn("outage", come_back, stage.random.choice((10.0, 100.0, 400.0)))
        if stage.random.random() < 0.5:
            scheduler.outage = SchedulerError("the scheduler is down")
            return "the scheduler is down"
        scheduler.observe_error = SchedulerError("the answer is partial")
        return "the scheduler's answers are partial"

    def _speak_unknown(self) -> str | None:
        if self._scheduler.unknown:
            self._scheduler.unknown.clear()
            return "the scheduler speaks plainly again"
        found = self._one(*ObjectState)
        if found is None:
            return None
        self._stage.happen("unknown word")
        self._scheduler.unknown[found.ref.token] = "MOONWALKING"
        return f"the scheduler says of {found.ref} that it is MOONWALKING"

    def _lose_accounts(self) -> str | None:
        """For a while nobody can say whether a submission without a known object has reached the scheduler."""
        newest = self._referee.truth.state.newest
        if newest is None or newest.object is not None:
            return None
        self._stage.happen("lost accounts")
        token, scheduler = newest.token, self._scheduler
        scheduler.find_errors[token] = Ambiguous("the accounts cannot be read")

        def come_back() -> None:
            scheduler.find_errors.pop(token, None)
            self._stage.note(f"the accounts of {token} can be read again")

        self._stage.kernel.spawn("accounts", come_back, self._stage.random.choice((20.0, 100.0, 400.0)))
        return f"the accounts of {token} are lost"

    def _purge(self) -> str | None:
        found = self._one(ObjectState.ENDED)
        if found is None:
            return None
        self._stage.happen("purge")
        self._scheduler.purge(found.ref)
        return f"{found.ref} is purged"

    def _step_clock(self) -> str | None:
        skew = self._stage.setting.skew
        if not skew:
            return None
        clock = self._stage.random.choice(self._clocks)
        clock.offset = self._stage.random.uniform(-skew / 2, skew / 2)
        self._stage.happen("stepped clock")
        return f"a clock is set to {clock.offset:+.1f} s"

    def _fail(self) -> str | None:
        found = self._one(ObjectState.RUNNING)
        actor = self._processes.get(found.attempt) if found is not None else None
        if found is None or actor is None or found.attempt not in self._scheduler.living():
            return None
        self._stage.kernel.kill(actor)
        if self._stage.random.random() < 0.3:
            self._stage.happen("out of memory")
            self._scheduler.end(found.ref, Cause.OUT_OF_MEMORY)
            return f"{found.ref} r{found.restart} runs out of memory"
        self._stage.happen("killed program")
        self._scheduler.exit(found.ref, signal=9)
        return f"{found.ref} r{found.restart} is killed by signal 9"

    def _shut_down(self) -> str | None:
        """Ask a job's processes to end without the scheduler's knowing, as a machine does that is shut down."""
        found = self._one(ObjectState.RUNNING)
        if found is None or found.attempt not in self._scheduler.living():
            return None
        self._stage.happen("unexplained notice")
        self._scheduler.notice(found.ref)
        return f"{found.ref} r{found.restart} is asked to end by nobody knows whom"

    def _stop_by_admin(self) -> str | None:
        found = self._one(ObjectState.RUNNING, ObjectState.QUEUED)
        if found is None or self._stage.random.random() < 0.9:
            return None
        self._stage.happen("stop by an administrator")
        self._scheduler.end(found.ref, Cause.STOPPED, evidence="CANCELLED by 0")
        return f"{found.ref} r{found.restart} is cancelled by an administrator"
