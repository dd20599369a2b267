"""Submitting: the calls that may start something, each made once, and owed an answer until it is known."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from prefect_dispatch.errors import Ambiguous, Exists, SchedulerError, SubmitRefused
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.names import new_token
from prefect_dispatch.model.facts import Requeueing, Submitted, Submitting
from prefect_dispatch.model.facts import SubmitRefused as SubmitRefusedFact
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
from prefect_dispatch.model.steps import Requeue, Submit
from prefect_dispatch.supervisor.access import Access
from prefect_dispatch.supervisor.own_call import OwnCall, is_unwanted
from prefect_dispatch.supervisor.request import request_of, secrets_of
from prefect_dispatch.supervisor.stopping import Stopper

_log = logging.getLogger(__name__)


class Submitter:
    """Submits and requeues.

    Args:
        access: the lineage.
        stopper: ends what a call started that nobody wants any more.
    """

    def __init__(self, access: Access, stopper: Stopper) -> None:
        self._access = access
        self._stopper = stopper
        self._calls: list[OwnCall] = []

    @property
    def owes(self) -> bool:
        """Whether something may run by a late call of this process's own that nobody else looks for any more."""
        return bool(self._calls)

    async def submit(self, state: LineageState, step: Submit) -> None:
        """Write down the intent, then make the one call. What it does not tell is found out by token."""
        limit = self._access.scheduler.capabilities.submit_bound
        secrets = {} if state.opened is None else await asyncio.to_thread(secrets_of, state.opened)
        intent = Submitting(
            n=step.n,
            token=new_token(),
            writer=self._access.record.writer,
            give_up_at=self._access.clock.now() + limit,
            base=step.base,
            floor=step.floor,
            restarts_allowed=step.restarts_allowed,
        )
        record_id = await asyncio.to_thread(self._access.record.id)
        began = self._access.clock.monotonic()
        after = await self._access.append(intent)
        submission = after.newest
        if after.opened is None or submission is None:
            return
        give_up = began + limit.total_seconds()
        request = request_of(
            self._access.lineage,
            record_id,
            after.opened,
            submission,
            secrets,
            lambda: self._access.clock.monotonic() < give_up,
            after,
        )
        reach("submit")
        # As late as can be; and what stands still behind it, is seen once it goes on.
        remaining = give_up - self._access.clock.monotonic()
        if remaining <= 0:
            raise SchedulerError(
                f"submission {step.n} was decided more than {limit.total_seconds():g}s ago and is not made any more"
            )
        try:
            async with asyncio.timeout(remaining):
                reference = await self._access.scheduler.submit(request)
        except SubmitRefused as error:
            await self._append_own(submission, SubmitRefusedFact(n=step.n, detail=str(error)))
            return
        except TimeoutError:
            self._owe_answer(submission, give_up)
            raise SchedulerError(
                f"submission {step.n} got no answer within {limit.total_seconds():g}s; it is looked for by its token"
            ) from None
        except SchedulerError:
            self._owe_answer(submission, give_up)
            raise
        self._calls.append(OwnCall(submission, reference))

    async def requeue(self, state: LineageState, step: Requeue) -> None:
        """Write down the intent, look again, then make the one call."""
        submission = step.submission
        if submission.object is None:
            return
        await self._access.append(Requeueing(n=submission.n, restart=step.restart))
        seen = (await self._access.scheduler.observe([submission.object])).get(submission.object)
        if seen is None or seen.state is not ObjectState.ENDED or seen.restart != step.restart - 1:
            return
        reach("requeue")
        try:
            await self._access.scheduler.requeue(submission.object, step.restart)
        except SubmitRefused as error:
            _log.warning("%s: %s", self._access.lineage, error, extra={"action": "requeue.refused"})
            await self._stopper.retire(state, submission)
        except SchedulerError:
            self._calls.append(OwnCall(submission, submission.object))
            raise
        else:
            self._calls.append(OwnCall(submission, submission.object))

    async def settle_calls(self) -> None:
        """Tell what came of one's own calls, and stop what by now nobody wants: whoever decided so cannot know it."""
        for call in list(self._calls):
            if call.object is None:
                asked_at = self._access.clock.monotonic()
                call.object = await self._find_own(call.submission.token)
                if call.object is None and asked_at < call.until:
                    continue
            if call.object is not None:
                n, generation = call.submission.n, call.submission.generation
                state = await self._append_own(call.submission, Submitted(n=n, object=call.object))
                if is_unwanted(state, generation, n):
                    await self._stopper.stop(call.object, None)
            self._calls.remove(call)

    def _owe_answer(self, submission: SubmissionState, give_up: float) -> None:
        """Others look for what a call that was given up in time may land. For a later one its author must answer."""
        bounds, now = self._access.scheduler.capabilities, self._access.clock.monotonic()
        if now >= give_up + bounds.clock_skew.total_seconds():
            until = now + (bounds.landing_bound + bounds.clock_skew).total_seconds()
            self._calls.append(OwnCall(submission, None, until))

    async def _find_own(self, token: str) -> ObjectRef | None:
        with contextlib.suppress(Ambiguous):
            return await self._access.scheduler.find(token)
        return None

    async def _append_own(self, submission: SubmissionState, fact: Submitted | SubmitRefusedFact) -> LineageState:
        """Append the result of one's own call: true whatever came in between, and told once."""
        reach("submitted")
        while True:
            state = await self._access.refresh()
            known = state.submission(submission.generation, submission.n)
            if known is None or known.landing in (Landing.LANDED, Landing.REFUSED):
                return state
            try:
                return await self._access.append(fact, submission.generation)
            except Exists:
                continue
