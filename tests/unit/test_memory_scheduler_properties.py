"""Whatever the hands and the clock do, the in-memory scheduler does not contradict itself."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.observation import EndedRestart, ObjectRef, ObjectState
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.plain_request import plain_request
from prefect_dispatch.testing.scheduler_case import assert_consistent
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING
from prefect_dispatch.testing.scripted_answer import accepts, times_out

NODES = 2
T = TypeVar("T")


def do(call: Coroutine[Any, Any, T]) -> T:
    """Make a call that has nothing to wait for."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


class World(RuleBasedStateMachine):
    """Submissions, looks, hands and time, in any order."""

    objects = Bundle("objects")

    @initialize(shape=st.sampled_from([SLURM, SLURM_WITHOUT_ACCOUNTING, KUBERNETES]))
    def open(self, shape: Any) -> None:
        self.shape = shape
        self.clock = ManualClock()
        self.scheduler = MemoryScheduler(self.clock.now, shape, slots=NODES)
        self.told: dict[ObjectRef, tuple[int, tuple[EndedRestart, ...]]] = {}
        self.stopped: dict[ObjectRef, int] = {}

    @rule(
        target=objects,
        late=st.booleans(),
        restarts_allowed=st.booleans(),
        limit=st.none() | st.integers(1, 600).map(lambda seconds: timedelta(seconds=seconds)),
    )
    def submit(self, late: bool, restarts_allowed: bool, limit: timedelta | None) -> ObjectRef:
        self.scheduler.script_submit(accepts(timedelta(seconds=40 if late else 0)))
        resources = Resources(time_limit=limit)
        request = plain_request(Path("/"), "train", resources=resources, restarts_allowed=restarts_allowed)
        return do(self.scheduler.submit(request))

    @rule(seconds=st.sampled_from([1, 10, 29, 30, 60, 121, 300, 1000, 4000]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.turn(timedelta(seconds=seconds))

    @rule()
    def let_the_next_thing_happen(self) -> None:
        due = self.scheduler.next_due()
        if due is not None:
            self.clock.turn(due - self.clock.now())

    @rule(object=objects, how=st.none() | st.just(Notice("TERM", timedelta(seconds=45))), late=st.booleans())
    def stop(self, object: ObjectRef, how: Notice | None, late: bool) -> None:
        landed = bool(self.scheduler.objects(object.token))
        if late:
            self.scheduler.script_stop(times_out(timedelta(seconds=20)))
        try:
            do(self.scheduler.stop(object, how))
        except SchedulerError:
            return
        if landed:
            self.stopped.setdefault(object, len(self.runs_of(object)))

    @rule(object=objects, allowed=st.booleans())
    def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        if object not in self.stopped:
            do(self.scheduler.set_restarts(object, allowed))

    @rule(object=objects, expected=st.integers(0, 3))
    def requeue(self, object: ObjectRef, expected: int) -> None:
        if object in self.stopped:
            return
        before = self.scheduler.objects(object.token)
        try:
            do(self.scheduler.requeue(object, expected))
        except (SubmitRefused, SchedulerError):
            assert self.scheduler.objects(object.token) == before

    @rule(
        object=objects,
        hand=st.sampled_from(["exit", "preempt", "restart", "end"]),
    )
    def lend_a_hand(self, object: ObjectRef, hand: str) -> None:
        before = self.scheduler.objects(object.token)
        try:
            getattr(self.scheduler, hand)(object)
        except (KeyError, ValueError):
            assert self.scheduler.objects(object.token) == before

    @rule(node=st.integers(1, NODES), lost=st.booleans())
    def cut_or_heal(self, node: int, lost: bool) -> None:
        (self.scheduler.lose_node if lost else self.scheduler.heal)(f"node-{node}")

    def runs_of(self, object: ObjectRef) -> list[str]:
        return [each.attempt for each in self.scheduler.processes.values() if each.object == object]

    @invariant()
    def what_is_told_holds_together(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        everything = [each.ref for each in self.scheduler.objects()]
        seen = do(self.scheduler.observe(everything))
        for each in self.scheduler.objects():
            known = not each.purged or self.shape.accounting
            assert (each.ref in seen) is known
            try:
                assert (do(self.scheduler.find(each.ref.token)) == each.ref) is known
            except Ambiguous:
                assert not known
        for ref, observation in seen.items():
            assert_consistent(observation)
            ending = observation.state is ObjectState.ENDING
            shown = min(observation.restart, len(self.runs_of(ref)) - 1) if ending else observation.restart
            restart, ends = self.told.get(ref, (0, ()))
            assert shown >= restart
            if self.shape.earlier_ends:
                assert observation.ended[: len(ends)] == ends
            self.told[ref] = (shown, observation.ended)

    @invariant()
    def one_run_at_a_time_by_the_schedulers_say_and_one_object_on_a_node(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        active = [each for each in self.scheduler.objects() if each.nodes and not each.is_over]
        assert len({each.nodes for each in active}) == len(active) <= NODES
        now = self.clock.now()
        for each in active:
            ours = [run for run in self.scheduler.processes.values() if run.object == each.ref]
            assert ours[-1].attempt == each.attempt
            if each.state is ObjectState.RUNNING:
                cut = each.nodes[0] in self.scheduler._cut_off
                assert ours[-1].live(now) or cut, "what runs has processes, unless nobody can tell"
        attempts = [run.attempt for run in self.scheduler.processes.values()]
        assert len(set(attempts)) == len(attempts)

    @invariant()
    def nothing_that_was_stopped_runs_again(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.living()
        for object, runs in self.stopped.items():
            assert len(self.runs_of(object)) == runs


World.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
