"""A cluster in memory: objects, nodes and processes that change as the clock and the test's hands say."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import Exit, ObjectRef, ObjectState
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.memory_object import Ending, MemoryObject
from prefect_dispatch.testing.memory_processes import Processes
from prefect_dispatch.testing.scheduler_shape import Shape

Effect = Callable[[datetime], None]
"""Something that happens at a time."""


class MemoryCluster:
    """What the in-memory scheduler schedules, and the test's hands on it; the port is not here.

    Time is the clock's alone. What is due by it happens, in the order in which it is due and at the time at which it is
    due, with the next call of anything.

    Args:
        clock: what time it is at the cluster, aware.
        shape: how it treats its objects.
        slots: how many objects run at a time, first in, first out, each on a node of its own; None leaves every start
            to the test.

    Attributes:
        requests: the last request, by token.
        processes: the processes of every execution that ever ran, by attempt; those of a second object that was given
            the same token, by attempt, ``+`` and the object's id.
    """

    def __init__(self, clock: Callable[[], datetime], shape: Shape, slots: int | None = None) -> None:
        self._clock = clock
        self._shape = shape
        self._nodes = tuple(f"node-{number}" for number in range(1, (slots or 0) + 1))
        self._objects: dict[ObjectRef, MemoryObject] = {}
        self._due: list[tuple[datetime, int, Effect]] = []
        self._order = itertools.count()
        self._cut_off: dict[str, datetime] = {}
        self._untold: dict[str, Exit] = {}
        self.requests: dict[str, SubmissionRequest] = {}
        self.processes: dict[str, Processes] = {}

    @property
    def shape(self) -> Shape:
        """How it treats its objects."""
        return self._shape

    def objects(self, token: str | None = None) -> tuple[MemoryObject, ...]:
        """Every object that ever landed, forgotten ones too, in the order in which they landed.

        Args:
            token: leave out all that do not carry it.
        """
        self._catch_up()
        return tuple(each for each in self._objects.values() if token is None or each.ref.token == token)

    def object_of(self, token: str) -> ObjectRef:
        """The newest object with this token that has landed, whether the submitter was told of it or not.

        Raises:
            KeyError: there is none.
        """
        found = self.objects(token)
        if not found:
            raise KeyError(f"token {token!r} has no object at {self._clock()}")
        return found[-1].ref

    def living(self) -> frozenset[str]:
        """The attempts whose processes live, whatever the scheduler says of them."""
        now = self._catch_up()
        return frozenset(each.attempt for each in self.processes.values() if each.live(now))

    def next_due(self) -> datetime | None:
        """When the next thing happens that no hand and no call is needed for; None for never."""
        self._catch_up()
        return self._due[0][0] if self._due else None

    def start(self, object: ObjectRef, node: str = "node-1") -> None:
        """Let a queued object run.

        Raises:
            ValueError: it is not queued, or the node is cut off.
        """
        now = self._catch_up()
        if node in self._cut_off:
            raise ValueError(f"{node} is cut off; nothing can start there")
        self._start(object, node, now)

    def exit(self, object: ObjectRef, code: int = 0, signal: int | None = None) -> None:
        """Let the program of the current restart exit by itself, also while it is being ended or is cut off.

        Args:
            object: which one.
            code: its exit code.
            signal: the signal that ended it instead.

        Raises:
            ValueError: it does not run.
        """
        now = self._catch_up()
        found = self._objects[object]
        exit = Exit(code=code) if signal is None else Exit(signal=signal)
        runs = self.processes.get(self._key(found))
        if found.is_over or runs is None or runs.ended_at is not None:
            raise ValueError(f"object {object} is {found.state}; nothing of restart {found.restart} can exit")
        self._end_processes(self._key(found), now)
        if self._is_cut_off(found):
            self._untold[self._key(found)] = exit
        else:
            self._exited(object, exit, now)

    def preempt(self, object: ObjectRef) -> None:
        """Take the capacity of a running object away: notice, its end and, as the shape has it, its next restart.

        Raises:
            ValueError: it does not run.
        """
        now = self._catch_up()
        found = self._objects[object]
        if found.state is not ObjectState.RUNNING:
            raise ValueError(f"object {object} is {found.state}; only what runs can be preempted")
        end = Ending(cause=Cause.PREEMPTED, evidence="preempted", again=self._restarts(found))
        self._begin_ending(object, end, now, noticed=True)

    def notice(self, object: ObjectRef) -> None:
        """Ask the processes of what runs to end by themselves, which the scheduler does not know of.

        So does a machine that is shut down.
        """
        now = self._catch_up()
        found = self._objects[object]
        if found.state is ObjectState.RUNNING and not self._is_cut_off(found):
            key = self._key(found)
            self.processes[key] = replace(self.processes[key], noticed_at=now)

    def lose_node(self, node: str) -> None:
        """Cut a node off: its processes go on, nothing reaches them, and after a while the scheduler gives it up."""
        now = self._catch_up()
        if node not in self._cut_off:
            self._cut_off[node] = now
            self._at(now + self._shape.node_lost_after, lambda at: self._give_up(node, now, at))
            self._catch_up()

    def heal(self, node: str) -> None:
        """Let a node be back: what the scheduler no longer runs on it is killed, and what ended there is told."""
        now = self._catch_up()
        if self._cut_off.pop(node, None) is None:
            return
        for object in [each for each in self._objects.values() if node in each.nodes and not each.is_over]:
            untold = self._untold.pop(self._key(object), None)
            if untold is not None:
                self._exited(object.ref, untold, now)
            elif object.state is ObjectState.ENDING:
                self._finish(object.ref, object.restart, now)
        current = {self._key(each) for each in self._objects.values() if not each.is_over}
        for key, each in list(self.processes.items()):
            if each.node == node and each.ended_at is None and key not in current:
                self._end_processes(key, now)
        self._fill_slots(now)

    def begin_ending(self, object: ObjectRef, *, again: bool = False) -> None:
        """Let it be ending; its processes live until :meth:`end`.

        Args:
            object: which one.
            again: whether it is on its way to its next restart, so that the count may show that one.
        """
        self._catch_up()
        self._objects[object] = self._objects[object].ending(Ending(again=again))

    def end(
        self,
        object: ObjectRef,
        cause: Cause | None = None,
        exit: Exit | None = None,
        *,
        evidence: str = "scripted",
        lingers: bool = False,
    ) -> None:
        """Say that the current restart has ended.

        Args:
            object: which one.
            cause: what the scheduler says ended it; None leaves it to the exit.
            exit: how the batch process ended.
            evidence: the scheduler's words.
            lingers: whether its processes live on for the shape's ``linger``.
        """
        now = self._catch_up()
        self._over(object, Ending(cause=cause, exit=exit, evidence=evidence), now, lingers=lingers)

    def restart(self, object: ObjectRef, cause: Cause = Cause.PREEMPTED, *, accounted: bool = True) -> None:
        """Let the scheduler restart an object by itself, at once: it is queued again as the next restart.

        Args:
            object: which one; it may run or have ended.
            cause: what ended the restart before, if it has not ended yet.
            accounted: whether accounting keeps that end; otherwise nobody learns how it ended.

        Raises:
            ValueError: the object may not be restarted: a test that does it anyway tests nothing.
        """
        now = self._catch_up()
        if not self._objects[object].restarts_allowed:
            raise ValueError(f"object {object} may not be restarted by the scheduler")
        if not self._objects[object].is_over:
            self.end(object, cause, evidence="restarted by the scheduler", lingers=True)
        if not accounted:
            self._objects[object] = self._objects[object].without_last_end()
        self._again(object, now)

    def purge(self, object: ObjectRef) -> None:
        """Forget an object now."""
        self._catch_up()
        self._objects[object] = self._objects[object].forgotten()

    def _land(self, ref: ObjectRef, restarts_allowed: bool) -> None:
        self._objects[ref] = MemoryObject(ref=ref, restarts_allowed=restarts_allowed)

    def _known(self, ref: ObjectRef) -> MemoryObject | None:
        """The object, unless it has never landed, or was forgotten and nothing else answers for it."""
        found = self._objects.get(ref)
        return None if found is None or (found.purged and not self._shape.accounting) else found

    def _start(self, ref: ObjectRef, node: str, at: datetime) -> None:
        running = self._objects[ref].running(at, node)
        self._objects[ref] = running
        self.processes[self._key(running)] = Processes(attempt=running.attempt, object=ref, node=node, began_at=at)
        limit = self.requests[ref.token].resources.time_limit
        if limit is not None and self._shape.keeps_time_limits:
            self._at(at + limit, lambda due: self._time_out(ref, running.restart, due))

    def _time_out(self, ref: ObjectRef, restart: int, at: datetime) -> None:
        found = self._objects[ref]
        if found.state is ObjectState.RUNNING and found.restart == restart:
            end = Ending(cause=Cause.TIMED_OUT, evidence="the time limit passed")
            self._begin_ending(ref, end, at, noticed=True)

    def _stop(self, ref: ObjectRef, how: Notice | None, at: datetime) -> None:
        found = self._objects[ref].with_restarts(False)
        self._objects[ref] = found
        end = Ending(cause=Cause.STOPPED, evidence="stopped on request")
        if found.state is ObjectState.QUEUED:
            self._over(ref, end, at)
        elif found.state is ObjectState.RUNNING:
            self._begin_ending(ref, end, at, noticed=how is not None, grace=how.period if how else timedelta(0))
        elif found.state is ObjectState.ENDING and found.end_to_come is not None:
            self._objects[ref] = found.ending(replace(found.end_to_come, stopped=True))
            if how is None and self._shape.ending_for is not None:
                self._at(at + self._shape.ending_for, lambda due: self._finish(ref, found.restart, due))

    def _restarts(self, object: MemoryObject) -> bool:
        return self._shape.restarts_by_itself and object.restarts_allowed

    def _begin_ending(
        self, ref: ObjectRef, end: Ending, at: datetime, *, noticed: bool, grace: timedelta = timedelta(0)
    ) -> None:
        """Set out to end what runs; its processes live until it has ended, and for the shape's linger after that."""
        found = self._objects[ref].ending(end)
        self._objects[ref] = found
        key = self._key(found)
        # Nothing reaches a node that is cut off, a notice as little as a kill.
        if noticed and not self._is_cut_off(found):
            self.processes[key] = replace(self.processes[key], noticed_at=at)
        if self._shape.ending_for is not None:
            self._at(at + grace + self._shape.ending_for, lambda due: self._finish(ref, found.restart, due))
            self._catch_up()

    def _exited(self, ref: ObjectRef, exit: Exit, at: datetime) -> None:
        found = self._objects[ref]
        if found.state is ObjectState.ENDING and found.end_to_come is not None:
            self._objects[ref] = found.ending(replace(found.end_to_come, exit=exit))
            self._finish(ref, found.restart, at)
        else:
            self._objects[ref] = found.ending(Ending(exit=exit, evidence=str(exit)))
            self._at(at + self._shape.completing_for, lambda due: self._finish(ref, found.restart, due))
            self._catch_up()

    def _finish(self, ref: ObjectRef, restart: int, at: datetime) -> None:
        """The time that a restart was given to end has passed, or all of it is gone."""
        found = self._objects[ref]
        end = found.end_to_come
        if found.state is not ObjectState.ENDING or found.restart != restart or end is None:
            return
        if not self._is_cut_off(found):
            self._over(ref, end, at, lingers=True)

    def _over(self, ref: ObjectRef, end: Ending, at: datetime, *, lingers: bool = False) -> None:
        over = self._objects[ref].over(at, end)
        self._objects[ref] = over
        if not self._is_cut_off(over):
            self._end_processes(self._key(over), at + self._shape.linger if lingers else at)
        if end.again:
            self._again(ref, at)
            if end.stopped:
                self._over(ref, Ending(cause=Cause.STOPPED, evidence="stopped on request"), at)
            return
        if self._shape.purge_after is not None:
            self._at(at + self._shape.purge_after, lambda due: self._purge_due(ref, over.restart))
        self._fill_slots(at)

    def _again(self, ref: ObjectRef, at: datetime) -> None:
        eligible_at = at + self._shape.restart_delay
        self._objects[ref] = self._objects[ref].again(eligible_at)
        self._at(eligible_at, self._fill_slots)
        self._fill_slots(at)

    def _purge_due(self, ref: ObjectRef, restart: int) -> None:
        found = self._objects[ref]
        if found.is_over and found.restart == restart:
            self._objects[ref] = found.forgotten()

    def _give_up(self, node: str, since: datetime, at: datetime) -> None:
        if self._cut_off.get(node) != since:
            return
        for found in [each for each in self._objects.values() if node in each.nodes and not each.is_over]:
            lost = Ending(cause=Cause.NODE_LOST, evidence=f"{node} was lost", again=self._restarts(found))
            self._over(found.ref, found.end_to_come or lost, at)

    def _key(self, object: MemoryObject) -> str:
        known = self.processes.get(object.attempt)
        ours = known is None or known.object == object.ref
        return object.attempt if ours else f"{object.attempt}+{object.ref.id}"

    def _is_cut_off(self, object: MemoryObject) -> bool:
        return any(node in self._cut_off for node in object.nodes)

    def _end_processes(self, key: str, at: datetime) -> None:
        known = self.processes.get(key)
        if known is not None and (known.ended_at is None or at < known.ended_at):
            self.processes[key] = replace(known, ended_at=at)

    def _fill_slots(self, at: datetime) -> None:
        """Start what waits, in its order, on the nodes that are free."""
        active = (ObjectState.RUNNING, ObjectState.ENDING)
        taken = {node for each in self._objects.values() if each.state in active for node in each.nodes}
        free = [node for node in self._nodes if node not in taken and node not in self._cut_off]
        for each in list(self._objects.values()):
            waits = each.state is ObjectState.QUEUED and (each.eligible_at is None or each.eligible_at <= at)
            if free and waits:
                self._start(each.ref, free.pop(0), at)

    def _at(self, due: datetime, effect: Effect) -> None:
        heapq.heappush(self._due, (due, next(self._order), effect))

    def _catch_up(self) -> datetime:
        """Let happen what the clock says is due, and return its time."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            due, _, effect = heapq.heappop(self._due)
            effect(due)
        return now
