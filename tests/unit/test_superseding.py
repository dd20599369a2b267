"""What follows from a supersession: what is owed to the old generation, and when a shared checkpoint is asked about."""

from __future__ import annotations

from typing import Any

import pytest

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import (
    Abandoned,
    Cessation,
    Ended,
    Finished,
    HoldLifted,
    LiftedBy,
    Observed,
    Outcome,
    Requeueing,
    Resolution,
    Retired,
    StopRequested,
    SubmitRefused,
    Submitted,
    Submitting,
)
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import SubmissionState
from prefect_dispatch.model.steps import Append, Finish, GiveUp, Held, Poll, Submit
from prefect_dispatch.model.superseding import schema_doubt
from prefect_dispatch.model.unaccounted import unknown_hold
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import Story, object_of, token_of

SHARED = {"shared_checkpoint": True}
PLAIN = SCRIPTED.model_copy(update={"requeue": False})


def begun(spec: dict[str, Any] | None = None, **given: Any) -> Story:
    """A job whose first execution runs."""
    story = Story(spec, **given)
    story.submit()
    story.run()
    return story


def supersede(story: Story, spec: dict[str, Any] | None = None) -> Story:
    """Open the next generation, with another spec where one is given."""
    opening = (Story(spec, opened=False) if spec is not None else story).opening(story.state.base, story.state.floor)
    story.tell(opening, generation=story.state.generation + 1)
    return story


def polled(story: Story) -> Poll:
    step = story.step()
    assert isinstance(step, Poll), step
    return step


def give_up(story: Story, old: SubmissionState) -> None:
    """Hold for an old object whose state stays unknown; a person says that it is gone, and that is carried out."""
    held = unknown_hold(story.state, old, SCRIPTED.unknown_bound, "")
    story.tell(held.fact)
    assert isinstance(story.step(), Held)
    story.lift()
    step = story.step()
    assert isinstance(step, GiveUp) and step.submission == old, step
    story.tell(Ended(n=old.n, restart=0, cause=Cause.VANISHED), generation=old.generation)


class TestAnOldObject:
    @pytest.mark.parametrize(
        ("cause", "outcome"), [(Cause.COMPLETED, Outcome.SUCCEEDED), (Cause.FAILED, Outcome.FAILED)]
    )
    def test_that_it_is_gone_says_nothing_of_the_new_one(self, cause, outcome) -> None:
        # given a new job that is over, and an old object whose state nobody can tell
        story = supersede(begun({"recovery": {"failed": {"action": "fail"}}}, capabilities=PLAIN))
        story.submit()
        story.run()
        story.tell(Observed(n=1, restart=0, state=ObjectState.UNKNOWN), generation=0)
        story.end(cause, code=0 if cause is Cause.COMPLETED else 1)
        step = polled(story)
        assert [each.generation for each in step.needs] == [0] and "1 of generation 0" in step.why
        # when a person says that it is gone
        give_up(story, story.state.obligations[0])
        # then the new job has ended as it did, and does not run again
        step = story.step()
        assert isinstance(step, Finish) and step.outcome is outcome

    def test_that_it_is_gone_lifts_no_hold_over_the_new_one(self) -> None:
        # given an old object that was given up
        story = supersede(begun(capabilities=PLAIN))
        story.submit()
        story.run()
        story.tell(Observed(n=1, restart=0, state=ObjectState.UNKNOWN), generation=0)
        give_up(story, story.state.obligations[0])
        # when the new one ends by a rule that holds
        story.end(Cause.OUT_OF_MEMORY)
        # then it is held for
        assert story.hold().cause is Cause.OUT_OF_MEMORY

    def test_it_is_asked_to_end_and_not_waited_for(self) -> None:
        story = supersede(begun(capabilities=PLAIN))
        # the new job is submitted first of all
        assert story.submit() == Submit(n=1, base="latest", floor=0, restarts_allowed=False)
        # and then the old one is stopped and looked after, while the new one runs
        step = polled(story)
        assert [each.generation for each in step.stop] == [0]
        assert [each.generation for each in step.observe] == [1, 0]
        assert [each.generation for each in step.needs] == [1]

    def test_one_in_flight_is_searched_for_and_stopped_when_it_is_found(self) -> None:
        story = Story(capabilities=PLAIN)
        story.intend()
        supersede(story).submit()
        assert [each.generation for each in polled(story).find] == [0]
        story.tell(Submitted(n=1, object=object_of(1)), generation=0)
        assert [each.generation for each in polled(story).stop] == [0]

    @pytest.mark.parametrize("turns_up", [False, True])
    def test_one_that_was_given_up_is_still_searched_for_after_any_number_of_supersessions(self, turns_up) -> None:
        story = Story(capabilities=PLAIN)
        story.intend()
        story.tell(Abandoned(n=1))
        supersede(supersede(supersede(story))).submit()
        assert [each.generation for each in polled(story).find] == [0]
        # it keeps nobody from the end, unless it turns up
        if turns_up:
            story.tell(Submitted(n=1, object=object_of(1)), generation=0)
        story.end(Cause.COMPLETED, code=0)
        assert isinstance(story.step(), Poll if turns_up else Finish)

    def test_one_that_the_scheduler_may_run_again_by_itself_is_ended_for_good(self) -> None:
        # given an object that was preempted, and that its scheduler is about to restart
        story = begun()
        assert story.newest.may_restart
        story.end(Cause.PREEMPTED)
        # when its job is superseded
        supersede(story).submit()
        # then it is retired beside the new job, and not asked about as if it ran
        step = polled(story)
        assert [each.generation for each in step.retire] == [0] and step.stop == ()
        # and the new job is not over before that is done
        story.end(Cause.COMPLETED, code=0)
        story.tell(Retired(n=1))
        assert [each.generation for each in polled(story).needs] == [0]
        story.tell(Retired(n=1), generation=0)
        assert isinstance(story.step(), Finish)

    def test_what_the_scheduler_was_asked_to_run_again_is_ended_too(self) -> None:
        story = begun({"recovery": {"failed": {"action": "requeue", "budget": 3}}})
        story.end(Cause.FAILED, code=1)
        story.tell(Requeueing(n=1, restart=1))
        supersede(story).submit()
        assert [each.generation for each in polled(story).retire] == [0]

    def test_its_end_is_charged_to_nobody(self) -> None:
        story = supersede(begun(capabilities=PLAIN))
        story.submit()
        story.tell(Ended(n=1, restart=0, cause=Cause.FAILED), generation=0)
        assert story.state.spent == {}

    def test_a_stop_of_the_new_job_waits_for_the_old_object(self) -> None:
        story = supersede(begun(capabilities=PLAIN))
        story.tell(StopRequested(intent="abandon", who="ops"))
        assert [each.generation for each in polled(story).needs] == [0]


class TestTheState:
    def test_whatever_was_asked_of_the_old_generation_is_over(self) -> None:
        # given a job that is being suspended
        story = begun(capabilities=PLAIN)
        story.tell(StopRequested(intent="suspend", who="ops"))
        # when it is superseded
        supersede(story)
        # then the new one is not
        assert isinstance(story.step(), Submit)
        assert story.state.parent is not None and story.state.parent.generation == 0

    def test_a_finished_one_is_the_parent_of_a_new_run(self) -> None:
        story = begun(capabilities=PLAIN)
        story.end(Cause.COMPLETED, code=0)
        story.tell(Finished(outcome=Outcome.SUCCEEDED))
        supersede(story)
        parent = story.state.parent
        assert parent is not None and (parent.generation, parent.outcome) == (0, Outcome.SUCCEEDED)
        assert isinstance(story.step(), Submit)

    def test_a_persons_choice_that_was_not_submitted_yet_is_copied(self) -> None:
        # given a hold that a person has answered with "from scratch", and nothing was submitted since
        story = begun(capabilities=PLAIN)
        story.end(Cause.OUT_OF_MEMORY)
        story.hold()
        story.lift(Resolution.FROM_SCRATCH)
        # when the job is superseded
        step = supersede(story).step()
        # then the new one starts from scratch
        assert isinstance(step, Submit) and (step.base, step.floor) == ("scratch", 2_000_000)


class TestASharedCheckpoint:
    @pytest.mark.parametrize(("before", "after"), [(SHARED, SHARED), (SHARED, {}), ({}, SHARED)])
    def test_the_old_object_is_ended_then_a_word_is_waited_for(self, before, after) -> None:
        # given
        story = supersede(begun(before, capabilities=PLAIN), after)
        # then the old object is ended first, and nothing is submitted
        step = polled(story)
        assert [each.generation for each in step.stop] == [each.generation for each in step.needs] == [0]
        story.tell(Ended(n=1, restart=0, cause=Cause.STOPPED), generation=0)
        # then a hold is opened that is about its processes
        hold = story.hold()
        assert (hold.object, hold.restart, hold.signal_may_lift) == (object_of(1), 0, True)
        assert "generation 0" in hold.why
        # when a person lifts it
        story.lift()
        # then the new job is submitted
        assert isinstance(story.step(), Submit)

    def held(self) -> Story:
        story = begun(SHARED, capabilities=PLAIN)
        story.end(Cause.PREEMPTED)
        supersede(story).hold()
        return story

    def test_the_site_may_lift_it(self) -> None:
        story = self.held()
        assert story.state.hold is not None
        hold = story.state.hold.opened.hold
        story.tell(Cessation(hold=hold, object=object_of(1), answer="ceased"))
        step = story.step()
        assert isinstance(step, Append) and isinstance(step.fact, HoldLifted)
        assert step.fact.lifted_by is LiftedBy.SIGNAL
        story.tell(step.fact)
        assert isinstance(story.step(), Submit)

    def test_that_one_old_object_is_gone_says_nothing_of_another(self) -> None:
        # given two old generations, of whose objects nobody can tell the state
        story = begun(SHARED, capabilities=PLAIN)
        supersede(story).tell(
            Observed(n=1, restart=0, state=ObjectState.UNKNOWN),
            generation=0,
        )
        intent = {"writer": "w", "give_up_at": story.now, "base": "latest", "floor": 0, "restarts_allowed": False}
        story.tell(Submitting(n=1, token=token_of(1, 1), **intent))
        story.tell(Submitted(n=1, object=object_of(1, 1)), Observed(n=1, restart=0, state=ObjectState.UNKNOWN))
        supersede(story)
        # when a person gives up the one
        give_up(story, story.state.obligations[0])
        # then the other one is waited for
        assert [each.generation for each in polled(story).needs] == [1]
        # and when that one has ended, nobody has said yet that its processes are gone
        story.tell(Ended(n=1, restart=0, cause=Cause.STOPPED), generation=1)
        assert "are the processes" in story.hold().why

    def test_of_a_single_one_that_was_given_up_nobody_is_asked_again(self) -> None:
        story = supersede(begun(SHARED, capabilities=PLAIN))
        story.tell(Observed(n=1, restart=0, state=ObjectState.UNKNOWN), generation=0)
        give_up(story, story.state.obligations[0])
        assert isinstance(story.step(), Submit)

    def test_a_signal_about_one_of_several_objects_lifts_nothing(self) -> None:
        # given a submission that was given up, and another one that ended
        story = Story(SHARED, capabilities=PLAIN)
        story.intend()
        story.tell(Abandoned(n=1))
        story.hold()
        story.lift()
        story.submit()
        story.run(n=2)
        story.end(Cause.PREEMPTED, n=2)
        # when it is superseded, then the hold is a person's: the first one may still turn up
        assert not supersede(story).hold().signal_may_lift

    def test_a_second_supersession_asks_again_what_nobody_has_answered(self) -> None:
        story = self.held()
        # when a generation without a shared checkpoint takes the place of the held one
        supersede(story, {})
        # then it asks too
        assert story.hold().object == object_of(1)

    def test_nobody_is_asked_where_nothing_was_ever_started(self) -> None:
        story = Story(SHARED, capabilities=PLAIN)
        assert isinstance(supersede(story).step(), Submit)
        story.intend()
        story.tell(SubmitRefused(n=1, detail="no"))
        assert isinstance(supersede(story).step(), Submit)

    def test_a_held_generation_looks_after_the_old_objects(self) -> None:
        # given a suspension of a generation whose parent's object has turned up late
        story = Story(SHARED, capabilities=PLAIN)
        story.intend()
        supersede(story)
        story.tell(StopRequested(intent="suspend", who="ops"))
        story.hold()
        story.tell(Submitted(n=1, object=object_of(1)), generation=0)
        step = story.step()
        assert isinstance(step, Held) and step.settle is not None
        assert [each.generation for each in step.settle.stop] == [0]


class TestTheSchema:
    @pytest.mark.parametrize(
        ("before", "after", "doubt"),
        [
            ({}, {}, ""),
            ({"seed": 1}, {"seed": 2}, ""),
            ({"checkpoint_schema": "3"}, {"checkpoint_schema": "3", "seed": 1}, ""),
            ({"checkpoint_schema": "3"}, {"checkpoint_schema": "4"}, "has changed"),
            ({"checkpoint_schema": "3"}, {}, "has changed"),
            ({}, {"checkpoint_schema": "3"}, "has changed"),
            ({"checkpoint_schema": "3"}, {"checkpoint_schema": "env:SCHEMA"}, "cannot be told"),
            ({"checkpoint_schema": "env:SCHEMA"}, {"checkpoint_schema": "3"}, "cannot be told"),
        ],
    )
    def test_a_change_is_nothing_to_be_taken_for_granted(self, before, after, doubt) -> None:
        opened = Story({"identity": before}).opening()
        spec = JobSpec.model_validate({"lineage": "digits", "command": ["true"], "identity": after})
        found = schema_doubt(opened, spec, spec.identity_digests())
        assert doubt in found and bool(found) is bool(doubt)
