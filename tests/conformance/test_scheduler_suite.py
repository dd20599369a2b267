"""The conformance suite of schedulers finds an adapter's faults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest import SkipTest

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState, Observation
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.testing.memory_case import MemoryCase
from prefect_dispatch.testing.memory_object import Ending, MemoryObject
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.scheduler_conformance import SchedulerConformance
from prefect_dispatch.testing.scheduler_shape import KUBERNETES, SLURM, SLURM_WITHOUT_ACCOUNTING, Shape


class FindsByPosition(MemoryScheduler):
    """It takes the newest object for the one that is looked for."""

    async def find(self, token: str) -> ObjectRef | None:
        made = self.objects()
        return made[-1].ref if made else None


class LosesWhatEnded(MemoryScheduler):
    """It looks only among what is queued or runs."""

    async def find(self, token: str) -> ObjectRef | None:
        return next((each.ref for each in self.objects(token) if not each.is_over), None)


class AnswersForOnePage(MemoryScheduler):
    """It takes the first page of an answer for all of it."""

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        return dict(list((await super().observe(objects)).items())[:10])


class SharesObjects(MemoryScheduler):
    """It gives the same name to what was submitted at the same time."""

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        return (await super().submit(request)).model_copy(update={"id": str(self._clock())})


class RefusesTooLate(MemoryScheduler):
    """It makes the object before it refuses it."""

    async def submit(self, request: SubmissionRequest) -> ObjectRef:
        answers, self._submit_answers = list(self._submit_answers), type(self._submit_answers)()
        made = await super().submit(request)
        self._submit_answers.extend(answers)
        return await super().submit(request) if answers else made


class LeavesTheSwitchAlone(MemoryScheduler):
    """It does not turn restarts off."""

    async def set_restarts(self, object: ObjectRef, allowed: bool) -> None:
        pass


class StopsOneRun(MemoryScheduler):
    """Its stop ends the run, and not the restart that is under way."""

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        if object in self._objects and self._objects[object].end_to_come is None:
            await super().stop(object, how)


class ComesBack(MemoryScheduler):
    """It takes the end of what was stopped for a lost node."""

    def _over(self, ref: ObjectRef, end: Ending, at: datetime, *, lingers: bool = False) -> None:
        super()._over(ref, replace(end, again=end.cause is Cause.STOPPED), at, lingers=lingers)


class StopsAreFailures(MemoryScheduler):
    """It tells a stop from a failure by the exit alone."""

    def _over(self, ref: ObjectRef, end: Ending, at: datetime, *, lingers: bool = False) -> None:
        failed = end.cause is Cause.STOPPED
        super()._over(ref, replace(end, cause=Cause.FAILED) if failed else end, at, lingers=lingers)


class StopsReachNoQueue(MemoryScheduler):
    """Its stop signals processes, and what is queued has none."""

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        if object in self._objects and self._objects[object].state is not ObjectState.QUEUED:
            await super().stop(object, how)


class RequeuesTwice(MemoryScheduler):
    """It does not look at the expected restart."""

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        found = self._objects[object]
        self._objects[object] = replace(found, state=ObjectState.QUEUED, restart=found.restart + 1)


class RequeuesWhatRuns(MemoryScheduler):
    """Its requeue ends a run, as Slurm's own does."""

    async def requeue(self, object: ObjectRef, expected_restart: int) -> None:
        self.end(object, Cause.PREEMPTED)


class CountsNothing(MemoryScheduler):
    """It says nothing of restarts."""

    def _observation(self, object: MemoryObject) -> Observation:
        return super()._observation(object).model_copy(update={"restart": 0, "ended": ()})


class EndsEarly(MemoryScheduler):
    """It tells the end of a run that is still ending."""

    def _observation(self, object: MemoryObject) -> Observation:
        told = super()._observation(object)
        if object.end_to_come is None:
            return told
        return told.model_copy(update={"ended": object.over(self._clock(), object.end_to_come).ended})


class LosesWhatWasStopped(MemoryScheduler):
    """Its accounting is asked for the completed and the failed only."""

    async def find(self, token: str) -> ObjectRef | None:
        found = await super().find(token)
        ends = self._objects[found].ended if found is not None and self._objects[found].is_over else ()
        return None if ends and ends[-1].cause is not None else found


class LosesWhatWasRequeued(MemoryScheduler):
    """It looks for the first run only."""

    async def find(self, token: str) -> ObjectRef | None:
        found = await super().find(token)
        return None if found is None or self._objects[found].restart > 0 else found


class KnowsNothingOfPurges(MemoryScheduler):
    """What was purged was never there."""

    async def find(self, token: str) -> ObjectRef | None:
        return next((each.ref for each in self.objects(token) if self._known(each.ref) is not None), None)


class TakesNoAnswerForNo(MemoryScheduler):
    """What could not be asked is not there."""

    async def find(self, token: str) -> ObjectRef | None:
        with suppress(SchedulerError):
            return await super().find(token)
        return None


class StopsWithoutTheSwitch(MemoryScheduler):
    """Its stop leaves restarts allowed: a preemption of what is ending brings it back."""

    def _stop(self, ref: ObjectRef, how: Notice | None, at: datetime) -> None:
        allowed = self._objects[ref].restarts_allowed
        super()._stop(ref, how, at)
        self._objects[ref] = self._objects[ref].with_restarts(allowed)

    def preempt(self, object: ObjectRef) -> None:
        found = self._objects[object]
        if found.state is ObjectState.ENDING and found.restarts_allowed:
            self._objects[object] = found.ending(Ending(cause=Cause.PREEMPTED, again=True))
        else:
            super().preempt(object)


class StopsNoQueuedRestart(MemoryScheduler):
    """Its stop takes what waits for its restart for ended."""

    async def stop(self, object: ObjectRef, how: Notice | None) -> None:
        found = self._objects.get(object)
        if found is None or found.state is not ObjectState.QUEUED or found.restart == 0:
            await super().stop(object, how)


class TellsWhatItHas(MemoryScheduler):
    """An answer that was cut off is an answer."""

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        with suppress(SchedulerError):
            return await super().observe(objects)
        return {}


class TellsOfTheLivingTogether(MemoryScheduler):
    """It asks the accounting only for one object at a time."""

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        told = await super().observe(objects)
        return {ref: each for ref, each in told.items() if len(told) == 1 or each.state is not ObjectState.ENDED}


class LeavesOutTheUnknown(MemoryScheduler):
    """A word that it does not know is no answer."""

    async def observe(self, objects: Collection[ObjectRef]) -> Mapping[ObjectRef, Observation]:
        told = await super().observe(objects)
        return {ref: each for ref, each in told.items() if each.state is not ObjectState.UNKNOWN}


class TellsALostNodeByItsExit(MemoryScheduler):
    """A lost node has no exit, and so no cause."""

    def _observation(self, object: MemoryObject) -> Observation:
        told = super()._observation(object)
        silent = [end.model_copy(update={"cause": None}) for end in told.ended]
        lost = any(end.cause is Cause.NODE_LOST for end in told.ended)
        return told.model_copy(update={"ended": tuple(silent)}) if lost else told


FAULTS = [
    (FindsByPosition, "another_token_finds_nothing", SLURM),
    (LosesWhatEnded, "an_ended_object_is_still_found", SLURM),
    (AnswersForOnePage, "many_objects_are_observed_at_once", SLURM),
    (SharesObjects, "many_objects_are_observed_at_once", KUBERNETES),
    (SharesObjects, "calls_at_the_same_time_do_not_mix", KUBERNETES),
    (RefusesTooLate, "a_refusal_leaves_no_object", KUBERNETES),
    (LeavesTheSwitchAlone, "a_preempted_object_that_may_not_restart_stays_ended", SLURM),
    (StopsOneRun, "a_stop_reaches_what_is_on_its_way_to_its_next_restart", SLURM),
    (StopsAreFailures, "a_running_job_is_stopped_once", SLURM),
    (StopsReachNoQueue, "a_queued_job_that_is_stopped_never_runs", KUBERNETES),
    (ComesBack, "a_stopped_object_never_comes_back", SLURM),
    (RequeuesTwice, "a_requeue_runs_it_again_once_or_is_refused", SLURM),
    (RequeuesWhatRuns, "a_job_that_has_its_restart_already_is_not_requeued", SLURM),
    (CountsNothing, "a_restart_by_the_scheduler_has_the_next_number", SLURM),
    (EndsEarly, "a_restart_by_the_scheduler_has_the_next_number", KUBERNETES),
    (LosesWhatWasStopped, "an_object_is_found_whatever_ended_it", SLURM),
    (LosesWhatWasRequeued, "an_object_is_found_in_every_restart", SLURM),
    (KnowsNothingOfPurges, "a_purged_object_is_found_or_ambiguous", SLURM_WITHOUT_ACCOUNTING),
    (TakesNoAnswerForNo, "an_outage_is_an_error_and_no_answer", SLURM),
    (StopsWithoutTheSwitch, "a_stopped_object_that_is_then_preempted_never_comes_back", SLURM),
    (StopsNoQueuedRestart, "a_queued_restart_that_is_stopped_never_runs", SLURM),
    (TellsWhatItHas, "an_outage_is_an_error_and_no_answer", KUBERNETES),
    (TellsWhatItHas, "a_partial_answer_is_an_error", KUBERNETES),
    (TellsOfTheLivingTogether, "one_query_tells_of_the_ended_and_the_living_together", SLURM),
    (LeavesOutTheUnknown, "an_unknown_word_is_an_observation", KUBERNETES),
    (TellsALostNodeByItsExit, "a_lost_node_is_told_as_that", KUBERNETES),
]


@pytest.mark.parametrize(
    ("fault", "name", "shape"), FAULTS, ids=[f"{kind.__name__}-{name}" for kind, name, _ in FAULTS]
)
async def test_a_fault_is_found(fault: type[MemoryScheduler], name: str, shape: Shape, tmp_path: Path) -> None:
    test = getattr(SchedulerConformance(), f"test_{name}")
    # given a scheduler that passes the test
    await test(MemoryCase(tmp_path, shape))

    # then the faulty one does not
    with pytest.raises(AssertionError):
        await test(MemoryCase(tmp_path, shape, fault))


async def test_what_a_case_cannot_do_is_skipped_by_name(tmp_path: Path) -> None:
    class Placid(MemoryCase):
        """It cannot have a node lost."""

        lose_node = None  # type: ignore[assignment]

    with pytest.raises(SkipTest, match=r"Placid has no lose_node\(\): Have the node lost"):
        await SchedulerConformance().test_a_lost_node_is_told_as_that(Placid(tmp_path, SLURM))
