"""Observing: what the scheduler says of a lineage's objects, appended where it is news."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.errors import Ambiguous, SchedulerError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.classify import cause_of, joined
from prefect_dispatch.model.facts import Abandoned, Ended, Observed, Submitted
from prefect_dispatch.model.next_step import pending_too_long
from prefect_dispatch.model.observation import EndedRestart, ObjectRef, ObjectState, Observation
from prefect_dispatch.model.observing import news, vanished
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
from prefect_dispatch.model.unaccounted import ambiguous_hold, unknown_hold
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.collecting import collected, raise_all


@dataclass(frozen=True)
class _Unknown:
    """An object whose state is unknown: since when, by full answers, and what the last one said."""

    since: datetime
    asked_at: datetime
    evidence: str


class Observer:
    """Asks the scheduler about objects, and about submissions whose object is not known.

    Args:
        access: the lineage. What is told of its state is in this process's own time.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._absent_since: dict[ObjectRef, datetime] = {}
        self._unknown: dict[ObjectRef, _Unknown] = {}

    async def observe(self, state: LineageState, submissions: Sequence[SubmissionState]) -> None:
        """Ask about some submissions' objects, all in one query, and append what is news.

        What cannot be told or used of one hides nothing of the others: where there is no answer about all of them, each
        is asked about by itself.

        Raises:
            SchedulerError: of one at least nothing could be told or used; the others were seen to.
        """
        known = {each.object: each for each in submissions if each.object is not None}
        if not known:
            return
        troubles: list[SchedulerError] = []
        seen: dict[ObjectRef, Observation | None] = {}
        try:
            seen = await self.look(list(known))
        except SchedulerError as error:
            if len(known) == 1:
                raise
            troubles.append(error)
            for reference in known:
                with collected(troubles):
                    seen |= await self.look([reference])
        for reference, submission in known.items():
            if reference in seen:
                with collected(troubles):
                    await self.take(state, submission, seen[reference])
        raise_all(troubles)

    async def look(self, references: Collection[ObjectRef]) -> dict[ObjectRef, Observation | None]:
        """Ask the scheduler about objects.

        Returns:
            What it says of each; None for one that has vanished. One that may have is left out.
        """
        asked_at = self._access.time.now()
        answers = await self._access.scheduler.observe(references)
        seen: dict[ObjectRef, Observation | None] = {}
        for reference in references:
            answer = answers.get(reference)
            self._note_unknown(reference, answer, asked_at)
            if answer is not None:
                self._absent_since.pop(reference, None)
                seen[reference] = answer
            elif self._absent_long_enough(reference, asked_at):
                seen[reference] = None
        return seen

    def _note_unknown(self, reference: ObjectRef, answer: Observation | None, asked_at: datetime) -> None:
        if answer is None or answer.state is not ObjectState.UNKNOWN:
            self._unknown.pop(reference, None)
            return
        before = self._unknown.get(reference)
        since = before.since if before is not None else self._access.time.now()
        self._unknown[reference] = _Unknown(since, asked_at, answer.evidence)

    def _absent_long_enough(self, reference: ObjectRef, asked_at: datetime) -> bool:
        """Vanished takes two full answers a bound apart on this process's own monotonic clock.

        An answer may have been on its way for long: the bound counts from the first one's arrival to the asking of the
        second.
        """
        since = self._absent_since.setdefault(reference, self._access.time.now())
        return asked_at - since >= self._access.scheduler.capabilities.observe_bound and asked_at > since

    async def hold_if_unknown(self, state: LineageState, submissions: Sequence[SubmissionState]) -> None:
        """Tell a person of an object that nothing goes on without and whose state has stayed unknown for too long.

        Unknown is neither success nor gone, however long: only a person can say what it is.
        """
        bound = self._access.scheduler.capabilities.unknown_bound
        last = self._access.record.last
        if last is None or last.seq != state.seq:
            return  # What was just appended may have changed it, and a hold is named for its place.
        for submission in submissions:
            unknown = self._unknown.get(submission.object) if submission.object is not None else None
            if unknown is not None and unknown.asked_at - unknown.since >= bound and state.hold is None:
                held = unknown_hold(state, submission, bound, unknown.evidence)
                await self._access.append(held.fact, held.generation)
                return

    async def take(self, state: LineageState, submission: SubmissionState, seen: Observation | None) -> None:
        """Append what is news of an object; None is one that has vanished."""
        for item in news(submission, seen) if seen is not None else vanished(submission):
            if isinstance(item, Observed):
                await self._access.append(item, submission.generation)
            else:
                await self.append_end(state, submission, item)

    async def append_end(self, state: LineageState, submission: SubmissionState, ended: EndedRestart) -> None:
        """Append the end of an execution, with what the root tells of it."""
        root, epoch = self._access.root, submission.epoch(ended.restart)
        word = published = None
        notes: tuple[str, ...] = ()
        if root is not None:
            notes = await asyncio.to_thread(root.notes, submission.attempt(ended.restart))
            word = await asyncio.to_thread(root.last_word, epoch, submission.attempt(ended.restart))
            published = await asyncio.to_thread(root.published, submission.generation)
        # A root that had no room for the last word is as silent as one that cannot be seen.
        silent = word is None or (word.claimed and word.program_started is None)
        if silent and self._access.reports is not None:
            report = await asyncio.to_thread(self._access.reports.last_word, submission.attempt(ended.restart))
            word = joined(word, report)
        suspended = state.stop is not None and state.stop.intent == "suspend" and submission is state.newest
        cause = cause_of(ended, word, suspended)
        opened = state.opened if submission.generation == state.generation else None
        too_long = opened is not None and pending_too_long(opened, submission, self._access.time.now())
        if cause is Cause.STOPPED and too_long:
            cause = Cause.NO_CAPACITY
        told = (str(ended.exit) if ended.exit else "", ended.evidence, word.detail if word is not None else "", *notes)
        await self._access.append(
            Ended(
                n=submission.n,
                restart=ended.restart,
                cause=cause,
                exit=ended.exit,
                nodes=ended.nodes,
                ended_at=ended.ended_at,
                published=published,
                detail="; ".join(dict.fromkeys(text for text in told if text)),
            ),
            submission.generation,
        )

    async def find(self, state: LineageState, submission: SubmissionState, needed: bool) -> None:
        """Look for an object by its token. A no is worth what it was when it was asked for.

        Where the scheduler cannot tell, a person is asked; but not about one that nothing waits for.
        """
        bounds, time = self._access.scheduler.capabilities, self._access.time
        seen_at = time.seen(("intent", submission.generation, submission.n))
        # Not by ``give_up_at``: its author's clock may be ahead of this one, or behind.
        may_land = time.now() - seen_at <= bounds.submit_bound + bounds.landing_bound + bounds.clock_skew
        intended = submission.landing is Landing.INTENDED
        try:
            reference = await self._access.scheduler.find(submission.token)
        except Ambiguous as error:
            person_knows = state.lifted_hold is not None and state.lifted_hold.token == submission.token
            if intended and person_knows and not may_land:
                await self._access.append(Abandoned(n=submission.n), submission.generation)
            elif intended and needed and not person_knows and state.hold is None:
                held = ambiguous_hold(state, submission, str(error))
                await self._access.append(held.fact, held.generation)
            return
        if reference is not None:
            await self._access.append(Submitted(n=submission.n, object=reference), submission.generation)
        elif intended and not may_land:
            await self._access.append(Abandoned(n=submission.n), submission.generation)
