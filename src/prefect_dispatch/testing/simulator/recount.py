"""Budgets, progress and choices, counted anew from the facts alone, by other code than the fold's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.resume_choice import SCRATCH
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    Ended,
    Entry,
    HoldLifted,
    HoldOpened,
    LiftedBy,
    Opened,
    Requeueing,
    Resolution,
    Retiring,
    SubmitRefused,
    Submitting,
)


class Recount:
    """What follows from a record for what may be done next.

    Attributes:
        spent: how often each cause has ended an execution of what was then the newest submission.
        last: the cause of the last such end; None once it was acted upon.
        last_seq: the place of the fact that told of it.
        fruitless: how many ends in a row came without a new publication.
        word: a person's word since the last submission or requeue; None where there is none.
        site: whether the site's word has lifted a hold since then, and no person's.
        base: what is to be resumed from.
        floor: from which epoch on publications count.
        newest: the newest submission.
        generation: the generation that all this is about.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.spent: Counter[Cause] = Counter()
        self.last: Cause | None = None
        self.last_seq = 0
        self._seq = 0
        self.fruitless = 0
        self.word: HoldLifted | None = None
        self.site = False
        self._lifted: str | None = None
        self.base, self.floor = "latest", 0
        self.newest = 0
        self._most_published = 0
        self._hold: str | None = None
        self._hold_was_unknown = False
        self._over: set[tuple[int, int | None]] = set()
        self._retiring: dict[int, int] = {}
        self._blind = False
        self._finished = False

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Recount:
        """Count a whole record."""
        counted = cls()
        for entry in entries:
            counted.take(entry)
        return counted

    def choice(self) -> tuple[str, int]:
        """Base and floor of the next submission."""
        return self.base, self.floor

    def take(self, entry: Entry) -> None:
        """Count one more fact. Those of an older generation count no more, and a new one begins anew."""
        if entry.generation < self.generation:
            return
        self._seq = entry.seq
        match entry.fact:
            case Opened(plan=plan, base=base, floor=floor):
                self.__init__()  # type: ignore[misc]
                self._seq, self.generation = entry.seq, entry.generation
                self._blind, self.base, self.floor = plan.count_every_execution, base, floor
            case Submitting(n=n) if n > self.newest:
                self.base, self.floor = self.choice()
                self.newest, self.last = n, None
                self._acted()
            case Requeueing():
                self.last = None
                self._acted()
            case Retiring(n=n, restart=restart):
                self._retiring[n] = min(restart, self._retiring.get(n, restart))
            case SubmitRefused(n=n) | Abandoned(n=n) if (n, None) not in self._over:
                self._over.add((n, None))
                self._charge(n, Cause.LAUNCH_FAILED)
            case Ended():
                self._end(entry.fact)
            case HoldOpened(hold=hold) if not self._finished:
                self._hold, self._hold_was_unknown = hold, entry.fact.state_unknown
                self._acted()
            case HoldLifted(hold=hold, lifted_by=LiftedBy.PERSON) if hold in (self._hold, self._lifted):
                self._hold, self._lifted, self.word, self.site, self.fruitless = None, None, entry.fact, False, 0
                if self.word.resolution in (Resolution.CONTINUE_FROM, Resolution.FROM_SCRATCH):
                    self.base, self.floor = self.word.base or SCRATCH, Epoch(self.generation, self.newest + 1, 0).number
            case HoldLifted(hold=hold, lifted_by=by) if hold == self._hold:
                self._hold, self._lifted, self.site = None, hold, by is LiftedBy.SIGNAL
            case _:
                pass

    def _end(self, fact: Ended) -> None:
        known = (fact.n, fact.restart)
        later = [restart for n, restart in self._over if n == fact.n and restart is not None]
        if known in self._over or (later and fact.restart < max(later)):
            return
        self._over.add(known)
        late = fact.n in self._retiring and (fact.restart > self._retiring[fact.n] or (fact.n, None) in self._over)
        if (late and fact.cause is Cause.STOPPED) or fact.n != self.newest:
            return
        gave_up = self._hold_was_unknown and fact.cause is Cause.VANISHED
        person_again = self.word is not None and self.word.resolution is Resolution.RUN_AGAIN and not gave_up
        if self.site or person_again:
            self._acted()
        self._charge(fact.n, fact.cause)
        if self._blind:
            self.fruitless += 1
        elif fact.published is not None:
            self.fruitless = 0 if fact.published > self._most_published else self.fruitless + 1
            self._most_published = max(self._most_published, fact.published)

    def _acted(self) -> None:
        """What lifted the last hold is used up, or is about something that is over."""
        self.word, self.site, self._lifted = None, False, None

    def _charge(self, n: int, cause: Cause) -> None:
        if n == self.newest:
            self.spent[cause] += 1
            self.last, self.last_seq = cause, self._seq
