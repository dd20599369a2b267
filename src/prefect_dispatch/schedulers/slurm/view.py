"""One look at a cluster's jobs for everyone in this process who asks at about the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from weakref import WeakValueDictionary

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.schedulers.slurm.answers import needs_accounting
from prefect_dispatch.schedulers.slurm.commands import Commands
from prefect_dispatch.schedulers.slurm.tables import (
    ACCOUNTING_FIELDS,
    AccountedRun,
    QueueEntry,
    queue_format,
    read_accounting,
    read_queue,
)

GATHER = 0.05
"""For this part of an interval a routine look waits for others to join it."""
GATHER_SOON = 0.01
"""For this part of an interval an urgent one does."""
SOON = 0.1
"""This part of an interval lies at least between two looks, however urgent."""
MOST_IDS = 5000
"""So many jobs are named in one call: Linux takes no longer argument than 128 KiB (execve(2))."""
NO_ACCOUNTING = "accounting storage is disabled"


@dataclass(frozen=True)
class Look:
    """What one look told. Each part is what was true after it was asked for.

    Attributes:
        queue: our jobs in the queue, by id.
        runs: the accounting's runs of those that were asked for, by id.
        accounting: whether there is an accounting.
        fault: why the accounting could not be asked; None where it could, or had not to be.
    """

    queue: Mapping[str, QueueEntry]
    runs: Mapping[str, list[AccountedRun]]
    accounting: bool
    fault: SchedulerError | None

    def require_accounting(self) -> None:
        """Refuse to tell anything that takes the accounting, where it could not be asked.

        Raises:
            SchedulerError: it could not.
        """
        if self.fault is not None:
            raise SchedulerError(str(self.fault))


@dataclass
class _Round:
    """A look that has not begun.

    Attributes:
        since: when it was first asked for, on the monotonic clock.
        urgent_since: when somebody first asked for it who is not to wait for an interval; None while nobody did.
        ids: the jobs that it is to tell of.
        tokens: the tokens that it is to look for.
        waiting: who waits for it.
    """

    since: float
    urgent_since: float | None = None
    ids: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    waiting: list[Future[Look]] = field(default_factory=list)

    def due(self, last: float, interval: float) -> float:
        """When it is to begin.

        Whoever was answered by the last look asks again an interval after that, and is waited for: else those who came
        in between would have a look of their own, and everyone only every other one.

        Args:
            last: when the last look was over.
            interval: how often the cluster is to be asked.
        """
        routine = max(self.since + GATHER * interval, last + (1 + GATHER) * interval)
        if self.urgent_since is None:
            return routine
        return min(routine, max(self.urgent_since + GATHER_SOON * interval, last + SOON * interval))


class View:
    """The jobs of one user of one cluster, asked for by all supervisors of a process together.

    Whoever asks joins the next look, which begins after that: nobody is told what was true before he asked. What is
    asked for once per interval is answered once per interval, however many ask; what was asked for a short while ago,
    or never, is answered soon.

    Args:
        commands: how Slurm is asked.
        interval: how often.
        history: how far back the accounting is asked.
        accounting: False where the site has none, and it is not to be asked.
    """

    def __init__(self, commands: Commands, interval: timedelta, history: timedelta, accounting: bool = True) -> None:
        self._commands = commands
        self._interval = interval.total_seconds()
        self._history = history
        self._accounting = accounting
        self._changed = threading.Condition()
        self._next: _Round | None = None
        self._last = -float("inf")
        self._busy = False
        self._asked: dict[str, float] = {}
        self._user: str | None = None

    async def look(self, ids: Collection[str] = (), token: str | None = None) -> Look:
        """Ask for jobs, and for whatever carries a token.

        Raises:
            SchedulerError: the queue could not be asked.
        """
        future: Future[Look] = Future()
        with self._changed:
            now = time.monotonic()
            names = {*ids, *([token] if token is not None else [])}
            urgent = any(now - self._asked.get(name, -float("inf")) < 0.9 * self._interval for name in names) or any(
                name not in self._asked for name in names
            )
            for name in names:
                self._asked[name] = now
            if self._next is None:
                self._next = _Round(now)
                threading.Thread(target=self._begin, args=[self._next], name="slurm-look", daemon=True).start()
            if urgent and self._next.urgent_since is None:
                self._next.urgent_since = now
            self._next.ids.update(ids)
            if token is not None:
                self._next.tokens.add(token)
            self._next.waiting.append(future)
            self._changed.notify_all()
        return await asyncio.wrap_future(future)

    def user(self) -> str:
        """The number of the user whose jobs these are, where the commands run. Blocks."""
        if self._user is None:
            number = self._commands.run("id", "-u").require().split()
            if not number or not number[-1].isdigit():
                raise SchedulerError(f"id -u printed {' '.join(number)[:80]!r}, which is no user's number")
            self._user = number[-1]
        return self._user

    def _begin(self, this: _Round) -> None:
        """Wait until a look is due, then look. One look at a time: whoever asks meanwhile joins the next one."""
        with self._changed:
            while True:
                left = this.due(self._last, self._interval) - time.monotonic()
                if not self._busy and left <= 0:
                    break
                self._changed.wait(None if self._busy else left)
            self._next, self._busy = None, True
        try:
            outcome: Look | BaseException = self._ask(this)
        except BaseException as error:
            outcome = error
        with self._changed:
            self._busy, self._last = False, time.monotonic()
            self._forget(self._last)
            self._changed.notify_all()
        for future in this.waiting:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(outcome, Look):
                future.set_result(outcome)
            else:
                told = SchedulerError(str(outcome)) if isinstance(outcome, SchedulerError) else outcome
                future.set_exception(told)

    def _forget(self, now: float) -> None:
        stale = [name for name, asked in self._asked.items() if now - asked > 10 * self._interval]
        for name in stale:
            del self._asked[name]

    def _ask(self, this: _Round) -> Look:
        user = self.user()
        printed = self._commands.run("squeue", f"--user={user}", "-a", "-h", "-t", "all", "-O", queue_format())
        queue = read_queue(printed.require())
        known = {entry.token for entry in queue.values()}
        ids = {id for id in this.ids if needs_accounting(queue.get(id))}
        runs: dict[str, list[AccountedRun]] = {}
        for which in self._questions(ids, bool(this.tokens - known)) if self._accounting else ():
            words = ("sacct", "-D", "-X", "-P", "-n", f"--user={user}", "-o", ",".join(ACCOUNTING_FIELDS), *which)
            try:
                answer = self._commands.run(*words)
                if answer.code != 0 and NO_ACCOUNTING in answer.complaint.lower():
                    self._accounting = False
                    return Look(queue, {}, False, None)
                runs.update(read_accounting(answer.require()))
            except SchedulerError as fault:
                return Look(queue, {}, True, fault)
        return Look(queue, runs, self._accounting, None)

    def _questions(self, ids: Collection[str], search: bool) -> Iterator[tuple[str, ...]]:
        """What is asked of the accounting: the whole history for tokens, and jobs by their ids.

        A start time would cut runs off those that are named as well, and the order of a job's runs is their number.
        What is told of them comes last, and so instead of what the history holds of them.
        """
        if search:
            yield "-S", f"now-{-(-self._history // timedelta(days=1))}days"
        named = sorted(ids, key=int)
        for start in range(0, len(named), MOST_IDS):
            yield "-j", ",".join(named[start : start + MOST_IDS])


_VIEWS: WeakValueDictionary[object, View] = WeakValueDictionary()
_lock = threading.Lock()


def shared_view(commands: Commands, interval: timedelta, history: timedelta, accounting: bool) -> View:
    """The view that everyone of this process shares who asks in the same way."""
    key = (commands, interval, history, accounting)
    with _lock:
        view = _VIEWS.get(key)
        if view is None:
            view = _VIEWS[key] = View(commands, interval, history, accounting)
        return view
