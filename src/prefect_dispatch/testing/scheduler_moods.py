"""The part of the suite about doubts: outages, partial answers, purges, unknown words, lost nodes, ends in between."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from dataclasses import replace
from datetime import timedelta

from prefect_dispatch.errors import Ambiguous, SchedulerError, SubmitRefused
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.testing.scheduler_case import SchedulerCase, assert_consistent, let_others_run, offer

LONG_NOTICE = Notice("TERM", timedelta(minutes=5))
"""A notice that leaves a stopped object ending for a while, where the scheduler grants one."""


class SchedulerMoods:
    """Part of the suite; see :class:`SchedulerConformance`."""

    async def test_an_object_is_found_whatever_ended_it(self, case: SchedulerCase) -> None:
        """Failed, stopped in the queue, stopped while it ran, or preempted: its token finds it."""
        failed = await case.scheduler.submit(case.exiting(7))
        await case.wait_until(failed, ObjectState.ENDED)
        await _assert_found(case, failed)

        stopped = await case.scheduler.submit(case.lasting())
        await case.wait_until(stopped, ObjectState.RUNNING)
        await _assert_found(case, stopped)
        await case.scheduler.stop(stopped, None)
        await _assert_found(case, stopped)
        await case.wait_until(stopped, ObjectState.ENDED)
        await _assert_found(case, stopped)

        preempted = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=False))
        await case.wait_until(preempted, ObjectState.RUNNING)
        await case.preempt(preempted)
        await _assert_found(case, preempted)
        await case.wait_until(preempted, ObjectState.ENDED)
        await _assert_found(case, preempted)

        queued = await case.submit_behind()
        await _assert_found(case, queued)
        await case.scheduler.stop(queued, None)
        await case.wait_until(queued, ObjectState.ENDED)
        await _assert_found(case, queued)

    async def test_an_object_is_found_in_every_restart(self, case: SchedulerCase) -> None:
        """By its own token, on its way to the next restart, in it, and after it; on request, or by itself."""
        object = await case.scheduler.submit(replace(case.exiting(7), restarts_allowed=True))
        await case.wait_until(object, ObjectState.ENDED)
        if case.scheduler.capabilities.requeue:
            await case.scheduler.requeue(object, 1)
            await _assert_found(case, object)
            await case.wait_until(object, ObjectState.ENDED)
        await _assert_found(case, object)

        preempted = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True))
        await case.wait_until(preempted, ObjectState.RUNNING)
        await case.preempt(preempted)
        await _assert_found(case, preempted)
        if case.restarts_by_itself:
            await case.wait_until(preempted, ObjectState.RUNNING)
            await _assert_found(case, preempted)

    async def test_a_stopped_object_that_is_then_preempted_never_comes_back(self, case: SchedulerCase) -> None:
        """A stop forbids restarts for whatever comes after it, also while what it stops is still ending."""
        object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True))
        await case.wait_until(object, ObjectState.RUNNING)
        await case.scheduler.stop(object, LONG_NOTICE)

        await case.preempt(object)

        said = await case.wait_until(object, ObjectState.ENDED)
        assert said.restart == 0 and [end.cause for end in said.ended] in ([Cause.STOPPED], [Cause.PREEMPTED])
        await let_others_run(case)
        assert (await case.scheduler.observe([object]))[object] == said

    async def test_a_queued_restart_that_is_stopped_never_runs(self, case: SchedulerCase) -> None:
        """A stop reaches an object that has run, and waits in the queue to run again."""
        objects = [await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True)) for _ in range(2)]
        object = objects[0]
        for each in objects:
            await case.wait_until(each, ObjectState.RUNNING)
        await case.preempt(object)
        if case.restarts_by_itself:
            # Whoever comes next takes the slot, so that there is a queue to wait in.
            objects.append(await case.scheduler.submit(case.lasting()))
            assert (await case.wait_until(object, ObjectState.QUEUED)).restart == 1

        await case.scheduler.stop(object, None)

        said = await case.wait_until(object, ObjectState.ENDED)
        assert_consistent(said)
        if case.restarts_by_itself:
            assert (said.restart, said.started_at, said.ended[-1].cause) == (1, None, Cause.STOPPED)
        for each in objects[1:]:
            await case.scheduler.stop(each, None)
        await let_others_run(case)
        assert (await case.scheduler.observe([object]))[object] == said

    async def test_one_query_tells_of_the_ended_and_the_living_together(self, case: SchedulerCase) -> None:
        """Where an answer comes from several places, such as a queue and an accounting, it is put together."""
        ended = await case.scheduler.submit(case.exiting(0))
        said = await case.wait_until(ended, ObjectState.ENDED)
        running = await case.scheduler.submit(case.lasting())
        await case.wait_until(running, ObjectState.RUNNING)
        queued = await case.submit_behind()
        absent = running.model_copy(update={"id": "999999", "token": "a" * len(running.token)})

        answer = await case.scheduler.observe([running, ended, absent, queued])

        assert _tokens(answer) == _tokens([running, ended, queued])
        assert answer[ended] == said
        assert answer[running].state is ObjectState.RUNNING and answer[queued].state is ObjectState.QUEUED

    async def test_an_unknown_word_is_an_observation(self, case: SchedulerCase) -> None:
        """Said of one of several objects it is ``unknown`` for that one, with its evidence, and never left out."""
        say_unknown = offer(case, "say_unknown")
        first, second = [await case.scheduler.submit(case.lasting()) for _ in range(2)]
        for each in (first, second):
            await case.wait_until(each, ObjectState.RUNNING)

        await say_unknown(first)

        for objects in ([first], [second, first]):
            answer = await case.scheduler.observe(objects)
            assert _tokens(answer) == _tokens(objects)
            assert answer[first].state is ObjectState.UNKNOWN and answer[first].evidence
        assert answer[second].state is ObjectState.RUNNING
        await _assert_found(case, first)

    async def test_an_outage_is_an_error_and_no_answer(self, case: SchedulerCase) -> None:
        """Who cannot ask learns nothing: not that an object is absent, and not that it was refused."""
        outage = offer(case, "outage")
        object = await case.scheduler.submit(case.lasting())
        await case.wait_until(object, ObjectState.RUNNING)

        async with outage():
            for scheduler in (case.scheduler, case.another()):
                await _assert_nothing_is_known(scheduler.find(object.token))
                await _assert_nothing_is_known(scheduler.observe([object]))
                await _assert_nothing_is_known(scheduler.stop(object, None))
                await _assert_nothing_is_known(scheduler.submit(case.lasting()))

        await _assert_found(case, object)
        assert (await case.scheduler.observe([object]))[object].state is ObjectState.RUNNING

    async def test_a_partial_answer_is_an_error(self, case: SchedulerCase) -> None:
        """What an answer lacks counts as gone after a while, so that an answer with a part missing is none."""
        partial = offer(case, "partial")
        told = await case.scheduler.submit(case.lasting())
        untold = await case.scheduler.submit(case.lasting())

        async with partial(untold):
            for objects in ([untold], [told, untold]):
                await _assert_nothing_is_known(case.scheduler.observe(objects))

        assert _tokens(await case.scheduler.observe([told, untold])) == _tokens([told, untold])

    async def test_a_purged_object_is_found_or_ambiguous(self, case: SchedulerCase) -> None:
        """``None`` would be a promise that no such object is there or ran; it was, and it did."""
        purge = offer(case, "purge")
        object = await case.scheduler.submit(case.exiting(0))
        said = await case.wait_until(object, ObjectState.ENDED)

        await purge(object)

        answer = await case.scheduler.observe([object])
        assert list(answer.items()) in ([], [(object, said)])
        for scheduler in (case.scheduler, case.another()):
            try:
                found = await scheduler.find(object.token)
            except Ambiguous as doubt:
                assert str(doubt) and not answer
            else:
                assert found == object

    async def test_a_lost_node_is_told_as_that(self, case: SchedulerCase) -> None:
        """The scheduler's word beats the exit; where it may, the object runs again as after a preemption."""
        lose_node = offer(case, "lose_node")
        object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=False))
        await case.wait_until(object, ObjectState.RUNNING)

        await lose_node(object)

        said = await case.wait_until(object, ObjectState.ENDED)
        (end,) = said.ended
        assert end.cause is Cause.NODE_LOST and end.nodes
        await _assert_found(case, object)
        await let_others_run(case)
        assert (await case.scheduler.observe([object]))[object] == said


def _tokens(objects: Collection[ObjectRef]) -> list[str]:
    return sorted(object.token for object in objects)


async def _assert_found(case: SchedulerCase, object: ObjectRef) -> None:
    """Check that an object is found by its token from anywhere."""
    for scheduler in (case.scheduler, case.another()):
        assert await scheduler.find(object.token) == object


async def _assert_nothing_is_known(call: Awaitable[object]) -> None:
    """Check that a call ends in the error that says only that nothing is known."""
    try:
        answer = await call
    except (Ambiguous, SubmitRefused) as error:
        raise AssertionError(f"it is more than a doubt: {error!r}") from error
    except SchedulerError as error:
        assert str(error)
        return
    raise AssertionError(f"nothing can be known, and the answer was {answer!r}")
