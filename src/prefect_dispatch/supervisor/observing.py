"""Observing: what the scheduler says of a lineage's objects, appended where it is news."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from prefect_dispatch.errors import Ambiguous
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.classify import cause_of
from prefect_dispatch.model.facts import Abandoned, Ended, Observed, Opened, Submitted
from prefect_dispatch.model.next_step import ambiguous_hold, pending_too_long
from prefect_dispatch.model.observation import EndedRestart, ObjectRef, Observation
from prefect_dispatch.model.observing import news, vanished
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
from prefect_dispatch.supervisor.access import Access


class Observer:
    """Asks the scheduler about objects, and about submissions whose object is not known.

    Args:
        access: the lineage.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._absent_since: dict[ObjectRef, float] = {}

    async def observe(self, opened: Opened, submissions: Sequence[SubmissionState]) -> None:
        """Ask about some submissions' objects, all in one query, and append what is news."""
        known = {each.object: each for each in submissions if each.object is not None}
        if not known:
            return
        seen = await self.look(list(known))
        for reference, submission in known.items():
            if reference in seen:
                await self.take(opened, submission, seen[reference])

    async def look(self, references: Collection[ObjectRef]) -> dict[ObjectRef, Observation | None]:
        """Ask the scheduler about objects.

        Returns:
            What it says of each; None for one that has vanished. One that may have is left out.
        """
        asked_at = self._access.clock.monotonic()
        answers = await self._access.scheduler.observe(references)
        seen: dict[ObjectRef, Observation | None] = {}
        for reference in references:
            answer = answers.get(reference)
            if answer is not None:
                self._absent_since.pop(reference, None)
                seen[reference] = answer
            elif self._absent_long_enough(reference, asked_at):
                seen[reference] = None
        return seen

    def _absent_long_enough(self, reference: ObjectRef, asked_at: float) -> bool:
        """Vanished takes two full answers a bound apart on this process's own monotonic clock.

        An answer may have been on its way for long: the bound counts from the first one's arrival to the asking of the
        second.
        """
        since = self._absent_since.setdefault(reference, self._access.clock.monotonic())
        bound = self._access.scheduler.capabilities.observe_bound
        return asked_at - since >= bound.total_seconds() and asked_at > since

    async def take(self, opened: Opened, submission: SubmissionState, seen: Observation | None) -> None:
        """Append what is news of an object; None is one that has vanished."""
        for item in news(submission, seen) if seen is not None else vanished(submission):
            if isinstance(item, Observed):
                await self._access.append(item, submission.generation)
            else:
                await self._append_end(opened, submission, item)

    async def _append_end(self, opened: Opened, submission: SubmissionState, ended: EndedRestart) -> None:
        root, epoch = self._access.root, submission.epoch(ended.restart)
        word = published = None
        if root is not None:
            word = await asyncio.to_thread(root.last_word, epoch, submission.attempt(ended.restart))
            published = await asyncio.to_thread(root.published, submission.generation)
        if word is None and self._access.reports is not None:
            word = await asyncio.to_thread(self._access.reports.last_word, submission.attempt(ended.restart))
        cause = cause_of(ended, word)
        if cause is Cause.STOPPED and pending_too_long(opened, submission, self._access.clock.now()):
            cause = Cause.NO_CAPACITY
        told = (str(ended.exit) if ended.exit else "", ended.evidence, word.detail if word is not None else "")
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

    async def find(self, state: LineageState, submission: SubmissionState) -> None:
        """Look for an object by its token. A no is worth what it was when it was asked for."""
        asked_at = self._access.clock.now()
        bounds = self._access.scheduler.capabilities
        due = submission.give_up_at + bounds.landing_bound + bounds.clock_skew
        may_land = asked_at <= due
        intended = submission.landing is Landing.INTENDED
        try:
            reference = await self._access.scheduler.find(submission.token)
        except Ambiguous as error:
            person_knows = state.lifted_hold is not None and state.lifted_hold.token == submission.token
            if intended and person_knows and not may_land:
                await self._access.append(Abandoned(n=submission.n), submission.generation)
            elif intended and not person_knows and state.hold is None:
                held = ambiguous_hold(state, submission, str(error))
                await self._access.append(held.fact, held.generation)
            return
        if reference is not None:
            await self._access.append(Submitted(n=submission.n, object=reference), submission.generation)
        elif intended and not may_land:
            await self._access.append(Abandoned(n=submission.n), submission.generation)
