"""What every scheduler has to do: a suite of tests over the port, to be subclassed for an adapter.

    class TestMyScheduler(SchedulerConformance):
        @pytest.fixture
        async def case(self):
            case = MyCase(…)
            yield case
            await case.close()

Run with pytest and pytest-asyncio in its auto mode. One case is one test's fresh world: see ``scheduler_case.py`` for
what it has to offer, and docs/adapter.md for a whole adapter with its case. What a case cannot do with its scheduler,
such as lose a node, is skipped by name: those tests are in ``scheduler_moods.py``. The suite knows no scheduler's own
words and sleeps nowhere: all waiting is the case's, which may turn a clock or poll a cluster. What only some schedulers
do (run an object again on request, or by themselves) is tested where the capabilities or the case say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta

from prefect_dispatch.errors import SubmitRefused
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.testing.scheduler_case import SchedulerCase, assert_consistent, let_others_run
from prefect_dispatch.testing.scheduler_moods import SchedulerMoods

MANY = 12
"""How many objects are submitted where there should be many; a case has room to run two of them."""


class SchedulerConformance(SchedulerMoods):
    """The suite. A subclass gives the fixture ``case``."""

    async def test_an_object_is_found_by_its_token_from_anywhere(self, case: SchedulerCase) -> None:
        """A supervisor that takes over finds what another one submitted."""
        request = case.lasting()
        assert await case.scheduler.find(request.token) is None

        object = await case.scheduler.submit(request)

        assert object.token == request.token
        assert object.scheduler == case.scheduler.capabilities.scheduler
        assert await case.scheduler.find(request.token) == object
        assert await case.another().find(request.token) == object

    async def test_another_token_finds_nothing(self, case: SchedulerCase) -> None:
        """An object never answers for another's token."""
        await case.scheduler.submit(case.lasting())

        assert await case.scheduler.find(new_token()) is None

    async def test_a_refusal_leaves_no_object(self, case: SchedulerCase) -> None:
        """After a refusal the token may be forgotten."""
        request = case.impossible()

        text = await _refusal(case.scheduler.submit(request))

        assert text and "\n" not in text
        assert await case.scheduler.find(request.token) is None

    async def test_a_job_runs_and_ends_with_its_exit_code(self, case: SchedulerCase) -> None:
        """A plain end leaves the cause to the exit code."""
        for code in (0, 7):
            object = await case.scheduler.submit(case.exiting(code))

            observation = await case.wait_until(object, ObjectState.ENDED)

            (end,) = observation.ended
            assert observation.restart == end.restart == 0
            assert end.exit is not None and end.exit.code == code
            assert end.cause in (None, Cause.COMPLETED if code == 0 else Cause.FAILED)
            assert end.nodes
            assert end.ended_at is not None and observation.started_at is not None
            assert end.ended_at >= observation.started_at

    async def test_an_ended_object_is_still_found(self, case: SchedulerCase) -> None:
        """A supervisor that comes after the end learns of it by the token."""
        object = await case.scheduler.submit(case.exiting(0))
        await case.wait_until(object, ObjectState.ENDED)

        assert await case.scheduler.find(object.token) == object
        assert await case.another().find(object.token) == object

    async def test_an_end_stands(self, case: SchedulerCase) -> None:
        """What was said of an end is said again, from anywhere, whatever is asked afterwards."""
        object = await case.scheduler.submit(case.exiting(0))
        said = await case.wait_until(object, ObjectState.ENDED)

        await case.scheduler.stop(object, None)

        assert (await case.scheduler.observe([object]))[object] == said
        assert (await case.another().observe([object]))[object] == said

    async def test_a_running_job_has_a_node_and_no_end(self, case: SchedulerCase) -> None:
        """The current restart's end is there exactly when the state is ended."""
        object = await case.scheduler.submit(case.lasting())

        observation = await case.wait_until(object, ObjectState.RUNNING)

        assert observation.nodes and observation.ended == () and observation.started_at is not None

    async def test_one_query_answers_for_all_and_leaves_out_the_absent(self, case: SchedulerCase) -> None:
        """An object that the scheduler does not know is missing from the answer, and only that one."""
        first = await case.scheduler.submit(case.lasting())
        second = await case.scheduler.submit(case.lasting())
        absent = first.model_copy(update={"id": "999999", "token": new_token()})

        answer = await case.scheduler.observe([first, absent, second])

        assert sorted(object.token for object in answer) == sorted([first.token, second.token])
        assert await case.scheduler.observe([]) == {}

    async def test_many_objects_are_observed_at_once(self, case: SchedulerCase) -> None:
        """Each of many objects, queued or running, is told apart from the others in one answer."""
        requests = [case.lasting() for _ in range(MANY)]

        objects = [await case.scheduler.submit(request) for request in requests]

        assert [object.token for object in objects] == [request.token for request in requests]
        assert len({object.id for object in objects}) == MANY
        answer = await case.scheduler.observe(objects)
        assert set(answer) == set(objects)
        for observation in answer.values():
            assert observation.state in (ObjectState.QUEUED, ObjectState.RUNNING)
            assert_consistent(observation)

    async def test_calls_at_the_same_time_do_not_mix(self, case: SchedulerCase) -> None:
        """Submissions, looks and stops of several callers, all at once, each get their own answer."""
        stopped = await case.submit_behind()
        requests = [case.lasting() for _ in range(MANY)]
        callers = [case.scheduler, case.another()]

        objects, _, nothing, _ = await asyncio.gather(
            asyncio.gather(*(callers[n % 2].submit(request) for n, request in enumerate(requests))),
            callers[0].stop(stopped, None),
            callers[1].find(new_token()),
            callers[0].observe([stopped]),
        )

        assert [object.token for object in objects] == [request.token for request in requests]
        assert len({object.id for object in objects}) == MANY
        assert nothing is None
        found = await asyncio.gather(*(callers[n % 2].find(object.token) for n, object in enumerate(objects)))
        assert found == objects
        assert (await case.wait_until(stopped, ObjectState.ENDED)).ended[-1].cause is Cause.STOPPED

    async def test_a_running_job_is_stopped_once(self, case: SchedulerCase) -> None:
        """A stop ends it as stopped; a second one changes nothing."""
        for how in (None, Notice("TERM", timedelta(seconds=1))):
            object = await case.scheduler.submit(case.lasting())
            await case.wait_until(object, ObjectState.RUNNING)

            await case.scheduler.stop(object, how)
            await case.scheduler.stop(object, how)

            (end,) = (await case.wait_until(object, ObjectState.ENDED)).ended
            assert end.cause is Cause.STOPPED

    async def test_a_queued_job_that_is_stopped_never_runs(self, case: SchedulerCase) -> None:
        """A stop reaches the queue."""
        object = await case.submit_behind()
        queued = (await case.scheduler.observe([object]))[object]
        assert queued.state is ObjectState.QUEUED and queued.nodes == ()

        await case.scheduler.stop(object, None)

        ended = await case.wait_until(object, ObjectState.ENDED)
        assert ended.started_at is None
        assert ended.ended[-1].cause is Cause.STOPPED and ended.ended[-1].nodes == ()

    async def test_a_stopped_object_never_comes_back(self, case: SchedulerCase) -> None:
        """A stop forbids the restarts that were allowed, and the next job runs without the stopped one's return."""
        object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True))
        await case.wait_until(object, ObjectState.RUNNING)

        await case.scheduler.stop(object, None)

        said = await case.wait_until(object, ObjectState.ENDED)
        assert said.restart == 0 and [end.cause for end in said.ended] == [Cause.STOPPED]
        await let_others_run(case)
        assert (await case.scheduler.observe([object]))[object] == said

    async def test_a_preempted_object_that_may_not_restart_stays_ended(self, case: SchedulerCase) -> None:
        """Whether the request forbade restarts or the switch did, it ends as preempted and that is all."""
        for switched in (False, True):
            object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=switched))
            await case.wait_until(object, ObjectState.RUNNING)
            if switched:
                await case.scheduler.set_restarts(object, False)

            await case.preempt(object)

            said = await case.wait_until(object, ObjectState.ENDED)
            assert said.restart == 0 and [end.cause for end in said.ended] == [Cause.PREEMPTED]
            await let_others_run(case)
            assert (await case.scheduler.observe([object]))[object] == said

    async def test_a_restart_by_the_scheduler_has_the_next_number(self, case: SchedulerCase) -> None:
        """The run that was preempted is over before its successor counts, and is told of where it is accounted for."""
        object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True))
        await case.wait_until(object, ObjectState.RUNNING)

        await case.preempt(object)

        began = (await case.scheduler.observe([object]))[object]
        assert_consistent(began)
        if not case.restarts_by_itself:
            said = await case.wait_until(object, ObjectState.ENDED)
            assert said.restart == 0 and [end.cause for end in said.ended] == [Cause.PREEMPTED]
            return
        again = await case.wait_until(object, ObjectState.RUNNING)
        assert again.restart == 1 and again.started_at is not None
        assert_consistent(again)
        assert [end.cause for end in again.ended] in ([], [Cause.PREEMPTED])
        assert all(end.ended_at is None or end.ended_at <= again.started_at for end in again.ended)

    async def test_a_stop_reaches_what_is_on_its_way_to_its_next_restart(self, case: SchedulerCase) -> None:
        """Preempted, then stopped before it runs again: it ends, and nothing of it starts any more."""
        object = await case.scheduler.submit(replace(case.lasting(), restarts_allowed=True))
        await case.wait_until(object, ObjectState.RUNNING)
        await case.preempt(object)

        await case.scheduler.stop(object, None)

        said = await case.wait_until(object, ObjectState.ENDED)
        assert_consistent(said)
        assert said.ended[-1].cause in (Cause.PREEMPTED, Cause.STOPPED)
        assert said.restart == 0 or said.started_at is None
        await let_others_run(case)
        assert (await case.scheduler.observe([object]))[object] == said

    async def test_a_stop_of_nothing_is_nothing(self, case: SchedulerCase) -> None:
        """An object that is not there may be stopped, as one that is gone."""
        object = await case.scheduler.submit(case.lasting())
        absent = object.model_copy(update={"id": "999999", "token": new_token()})

        await case.scheduler.stop(absent, None)

        assert list(await case.scheduler.observe([object, absent])) == [object]

    async def test_the_restart_switch_stops_nothing(self, case: SchedulerCase) -> None:
        """Setting it, twice, leaves a running job alone."""
        object = await case.scheduler.submit(case.lasting())
        running = await case.wait_until(object, ObjectState.RUNNING)

        for allowed in (True, True, False, False):
            await case.scheduler.set_restarts(object, allowed)

        assert (await case.scheduler.observe([object]))[object] == running

    async def test_a_requeue_runs_it_again_once_or_is_refused(self, case: SchedulerCase) -> None:
        """The expected restart makes a requeue safe to repeat; a scheduler without requeue refuses each."""
        object = await case.scheduler.submit(case.exiting(7))
        ended = await case.wait_until(object, ObjectState.ENDED)

        if not case.scheduler.capabilities.requeue:
            assert await _refusal(case.scheduler.requeue(object, 1))
            assert (await case.scheduler.observe([object]))[object] == ended
            return
        await case.scheduler.requeue(object, 1)
        await case.scheduler.requeue(object, 1)

        again = await case.wait_until(object, ObjectState.ENDED)
        assert again.restart == 1
        assert [end.restart for end in again.ended][-1] == 1
        assert_consistent(again)

    async def test_a_job_that_has_its_restart_already_is_not_requeued(self, case: SchedulerCase) -> None:
        """A requeue of a past restart is done already, or refused; it never ends a run."""
        object = await case.scheduler.submit(case.lasting())
        running = await case.wait_until(object, ObjectState.RUNNING)

        try:
            await case.scheduler.requeue(object, 0)
        except SubmitRefused:
            pass

        assert (await case.scheduler.observe([object]))[object] == running

    async def test_a_log_may_be_asked_for_at_any_time(self, case: SchedulerCase) -> None:
        """The name of a log says where it is, and does not say that it is there."""
        object = await case.scheduler.submit(case.exiting(0))
        absent = object.model_copy(update={"id": "999999", "token": new_token()})

        before = case.scheduler.log(object)
        await case.wait_until(object, ObjectState.ENDED)

        assert case.scheduler.log(object) == before
        assert before is None or before.startswith("/")
        assert case.scheduler.log(absent) is None


async def _refusal(call: Awaitable[object]) -> str:
    """The text with which a call is refused."""
    try:
        await call
    except SubmitRefused as error:
        return str(error)
    raise AssertionError("it was not refused")
