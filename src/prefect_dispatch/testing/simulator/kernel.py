"""The kernel: actors in threads of their own, of which one runs at a time, and time that passes only when all wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

NEVER = float("inf")
"""The wake time of who waits for somebody else."""
MOST_STEPS = 400_000
"""A simulation that takes more has an actor that never comes to rest."""


class Killed(BaseException):
    """Raised where an actor is parked when it is killed. Nothing but its own clean-up may follow."""


class Over(BaseException):
    """Raised where an actor is parked when the simulation is over."""


class Actor:
    """Somebody who acts: a supervisor, an execution, a person, the world.

    Attributes:
        name: for the trace.
        wake_at: when it may go on.
        doom: what is raised where it is parked next.
        alive: whether its main function has not returned.
    """

    def __init__(self, name: str, main: Callable[[], None], wake_at: float) -> None:
        self.name = name
        self.main = main
        self.wake_at = wake_at
        self.doom: type[BaseException] | None = None
        self.alive = True
        self.thread: threading.Thread | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class Kernel:
    """Passes one baton among the actors. Who goes on is chosen by a seeded generator, at every park.

    The choice is made in the thread that parks, so that an actor that goes on costs no switch of threads.

    Args:
        random: makes all choices.
        loyalty: how likely an actor that may go on does.

    Attributes:
        now: seconds since the beginning.
        steps: how often somebody parked.
        failure: the first exception that an actor let out, and whose.
    """

    def __init__(self, random: Random, loyalty: float) -> None:
        self.random = random
        self.now = 0.0
        self.steps = 0
        self.failure: tuple[Actor, BaseException] | None = None
        self._loyalty = loyalty
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._over = False
        self._caller = threading.Lock()
        self._caller.acquire()

    @property
    def current(self) -> Actor:
        """Who runs."""
        assert self._current is not None
        return self._current

    @property
    def over(self) -> bool:
        """Whether nobody acts any more."""
        return self._over

    def runs_here(self) -> bool:
        """Whether the calling thread is the actor that runs."""
        current = self._current
        return current is not None and current.thread is threading.current_thread()

    def spawn(self, name: str, main: Callable[[], None], after: float = 0.0) -> Actor:
        """Add an actor. It begins when it is chosen, no earlier than after so many seconds."""
        actor = Actor(name, main, self.now + after)
        self._actors.append(actor)
        return actor

    def run(self) -> None:
        """Let them act until somebody calls :meth:`stop` or nobody is left, then end all of them."""
        if self._actors:
            self._pass_to(self._choose(None))
            self._caller.acquire()
        self._over = True
        for actor in list(self._actors):
            if actor.thread is not None:
                actor.doom = Over
                self._pass_to(actor)
                self._caller.acquire()
                actor.thread.join()

    def stop(self) -> None:
        """Have the simulation end at the next park."""
        self._over = True

    def park(self, until: float | None = None) -> None:
        """Let others go first; until a time, where one is given.

        Raises:
            Killed: the actor was killed meanwhile.
            Over: the simulation is over.
        """
        me = self.current
        if me.doom is not None:
            raise me.doom
        me.wake_at = self.now if until is None else max(until, self.now)
        chosen = self._choose(me)
        if chosen is not me:
            self._pass_to(chosen)
            me.turn.acquire()
        if me.doom is not None:
            raise me.doom

    def sleep(self, seconds: float) -> None:
        """Park for so many seconds."""
        self.park(self.now + seconds)

    def kill(self, actor: Actor) -> None:
        """Have an actor end where it is parked. One that has not begun never will."""
        if not actor.alive:
            return
        if actor.thread is None:
            self._forget(actor)
        else:
            actor.doom = Killed
            actor.wake_at = self.now

    def wake(self, actor: Actor) -> None:
        """Let an actor go on from now."""
        actor.wake_at = min(actor.wake_at, self.now)

    def _choose(self, me: Actor | None) -> Actor | None:
        """Who goes on; None for the caller of :meth:`run`, since it is over."""
        self.steps += 1
        if self.steps > MOST_STEPS and self.failure is None and me is not None:
            self.failure = (me, RuntimeError(f"no rest after {MOST_STEPS} steps"))
            self._over = True
        if self._over or not self._actors:
            return None
        random, now = self.random.random, self.now
        if me is not None and me.alive and me.wake_at <= now and random() < self._loyalty:
            return me
        ready = [actor for actor in self._actors if actor.wake_at <= now]
        if not ready:
            now = min(actor.wake_at for actor in self._actors)
            if now == NEVER:
                self._over = True
                return None
            self.now = now
            ready = [actor for actor in self._actors if actor.wake_at <= now]
        return ready[int(random() * len(ready))] if len(ready) > 1 else ready[0]

    def _pass_to(self, actor: Actor | None) -> None:
        self._current = actor
        if actor is None:
            self._caller.release()
        elif actor.thread is None:
            actor.thread = threading.Thread(target=self._act, args=(actor,), name=actor.name, daemon=True)
            actor.thread.start()
        else:
            actor.turn.release()

    def _act(self, actor: Actor) -> None:
        try:
            actor.main()
        except (Killed, Over):
            pass
        except BaseException as error:
            if self.failure is None:
                self.failure = (actor, error)
            self._over = True
        self._forget(actor)
        self._pass_to(None if self._over else self._choose(None))

    def _forget(self, actor: Actor) -> None:
        actor.alive = False
        self._actors.remove(actor)
