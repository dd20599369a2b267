"""The vigil over a program: one notice is passed on, and it is killed when its time is over, until nothing is left."""

from __future__ import annotations

import select
import signal
import time
from datetime import timedelta

from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.job.guardian import KILL_WITHIN
from prefect_dispatch.job.notices import name_of_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from prefect_dispatch.job.asking import Asking
    from prefect_dispatch.job.clerk import Clerk
    from prefect_dispatch.job.deadline import Deadline
    from prefect_dispatch.job.notices import Notices
    from prefect_dispatch.job.program import Ending, Program

_GUARDIAN_GRACE = 2 * KILL_WITHIN + 5.0
"""Seconds after the order to kill in which a guardian that has taken note of it must have reported the end."""
_GUARDIAN_PATIENCE = 5.0
"""Seconds in which it must have taken note of the order to kill or of the leader's end, which it does at once."""
_TICK = 1.0


@dataclass(frozen=True)
class Asked:
    """That a program was asked to save and exit, and what becomes of it if it does not.

    Args:
        kill_at: when all of it is killed, by the monotonic clock.
        over: what the log says then: whose time is over.
        by_deadline: whether the total deadline is what ends it, whoever asked first.
        terminated: whether it got SIGTERM, since the deadline is at hand.
        killed: whether it was killed.
    """

    kill_at: float
    over: str
    by_deadline: bool = False
    terminated: bool = False
    killed: bool = False

    def but(self, **changes: Any) -> Asked:
        """The same with these changes. The standard library's ``replace`` would import its module at this moment."""
        return Asked(**{**vars(self), **changes})

    def no_later(self, kill_at: float, over: str) -> Asked:
        """The same, if it is killed by then anyway; else with that time, and what is said then."""
        return self if self.kill_at <= kill_at else self.but(kill_at=kill_at, over=over)


class Vigil:
    """Watches one program until nothing of it is left.

    Args:
        program: which one.
        asking: asks it to save and exit.
        notices: what the wrapper is told.
        clerk: says whether its saves can be published, and keeps the journal.
        say: adds a line to the log.
        deadline: its total deadline; None where there is none.

    Attributes:
        asked: what it was asked for; None while that is nothing.
    """

    def __init__(
        self,
        program: Program,
        asking: Asking,
        notices: Notices,
        clerk: Clerk,
        say: Callable[[str], None],
        deadline: Optional[Deadline] = None,
    ) -> None:
        self.asked: Optional[Asked] = None
        self._program = program
        self._asking = asking
        self._notices = notices
        self._clerk = clerk
        self._say = say
        self._deadline = deadline
        self._unnoticed_since: Optional[float] = None

    def keep(self) -> Ending:
        """Wait until nothing of the program is left; pass one notice on, and kill it when its time is over."""
        poll = select.poll()
        poll.register(self._program.reports, select.POLLIN)
        poll.register(self._notices.descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(1000 * self._patience() + 1)}
            if self._notices.descriptor in ready:
                self._notices.clear()
            # Reports first: a program that is done was not ended by what is due only now.
            ending = self._program.take_reports() if self._program.reports in ready else None
            if ending is not None:
                return ending
            now = time.monotonic()
            self._clerk.check_scan()
            self._mind_notices(now)
            self._asking.go_on(now)
            if self._deadline is not None and not self._is_at_its_end:
                self._mind_deadline(self._deadline, now)
            if self.asked is not None and not self.asked.killed and now >= self.asked.kill_at:
                self.asked = self.asked.but(killed=True)
                self._say(f"{self.asked.over}; killing")
                self._program.kill()
            if self._guardian_is_silent(now):
                self._say("the guardian does not answer; killing it and what it guards")
                return self._program.end_without_guardian()

    @property
    def _is_at_its_end(self) -> bool:
        """Whether the program has ended by itself or is being killed; then no deadline ends it any more."""
        return (self.asked is not None and self.asked.killed) or self._program.leader_has_ended

    def _patience(self) -> float:
        """Seconds for which nothing is due."""
        patience = _TICK
        if self.asked is not None and not self.asked.killed:
            patience = min(patience, max(0.0, self.asked.kill_at - time.monotonic()))
        if self._deadline is not None and not self._is_at_its_end:
            patience = min(patience, self._deadline.until_next())
        return min(patience, self._asking.patience)

    def _mind_notices(self, now: float) -> None:
        """Pass on that the wrapper was told to end, or that the saves cannot be published."""
        first, problem = self._notices.first, self._clerk.problem
        if first is None and problem is None:
            return
        period = self._asking.period
        kill_at = now + period.total_seconds()
        over = f"the notice period is over after {describe_duration(period)}"
        if self.asked is None:
            self.asked = Asked(kill_at, over)
            self._asking.ask(problem if first is None else f"{name_of_signal(first)} received", period, now)
        elif first is not None:
            # Whoever takes the machine away waits no longer for a program that the deadline has asked already.
            self.asked = self.asked.no_later(kill_at, over)

    def _mind_deadline(self, deadline: Deadline, now: float) -> None:
        """Do what the total deadline asks for now."""
        if not deadline.leaves_no_time():
            return
        left = max(0.0, deadline.left())
        ends, over = now + left, "the total deadline has passed"
        if self.asked is None:
            self.asked = Asked(ends, over, by_deadline=True)
            self._asking.ask("the total deadline is near", timedelta(seconds=left), now)
        self.asked = self.asked.no_later(ends, over)
        if left <= deadline.terminate_before and not self.asked.terminated:
            self.asked = self.asked.but(terminated=True, by_deadline=True)
            self._say(f"the total deadline is in {left:.1f}s: SIGTERM to the program")
            self._program.notify(signal.SIGTERM)

    def _guardian_is_silent(self, now: float) -> bool:
        """Whether the guardian has not done for too long what it does at once, or in a bounded time."""
        self._unnoticed_since = (self._unnoticed_since or now) if self._program.leader_is_unnoticed else None
        if self._unnoticed_since is not None and now >= self._unnoticed_since + _GUARDIAN_PATIENCE:
            return True
        grace = _GUARDIAN_GRACE if self._program.is_clearing else _GUARDIAN_PATIENCE
        return self.asked is not None and now >= self.asked.kill_at + grace
