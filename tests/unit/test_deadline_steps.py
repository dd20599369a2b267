"""What a total deadline does to the next step, to what a scheduler is handed, and to the plan."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.submission import Submission
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.deadline import LIMIT_GRACE, leaves_no_time, terms_of, time_left, within_time_left
from prefect_dispatch.model.facts import Finished, HoldOpened, Outcome, Reopened, StopRequested
from prefect_dispatch.model.spec import JobSpec, Resources
from prefect_dispatch.model.steps import Append, Finish, Held, Poll, Requeue, Retire, Submit
from prefect_dispatch.schedulers.registry import job_refusal
from prefect_dispatch.schedulers.slurm.script import sbatch_options
from prefect_dispatch.supervisor.request import request_of
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import BEGIN, Story

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PLAIN = Capabilities(scheduler="plain", requeue=False, time_limit=True)
TERMS: dict[str, Any] = {"budget": "8h", "margin": "2min"}


def running(capabilities: Capabilities = PLAIN, **spec: Any) -> Story:
    story = Story({"deadline": TERMS, **spec}, capabilities)
    story.submit()
    story.run()
    return story


def test_the_time_of_a_generation_begins_when_its_first_execution_runs() -> None:
    story = Story({"deadline": TERMS}, PLAIN)
    story.later(3 * HOUR)
    story.submit()
    assert time_left(story.state, story.now) == 8 * HOUR
    story.run()
    story.later(HOUR)
    assert time_left(story.state, story.now) == 7 * HOUR


def test_it_begins_at_the_opening_where_the_queue_counts() -> None:
    story = Story({"deadline": {**TERMS, "count_queue": True}}, PLAIN)
    story.later(9 * HOUR)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE
    terms = terms_of(story.state)
    assert terms is not None and terms.opened_at == BEGIN.timestamp()


def test_a_clock_set_back_gives_a_supervisor_no_time_back() -> None:
    story = running()
    story.later(6 * HOUR)
    story.end(Cause.PREEMPTED)
    assert time_left(story.state, story.now - 6 * HOUR) == 2 * HOUR
    terms = terms_of(story.state)
    assert terms is not None and terms.now == story.now.timestamp()


@pytest.mark.parametrize("passed", [8 * HOUR - 3 * MINUTE, 8 * HOUR - 2 * MINUTE, 12 * HOUR])
def test_what_cannot_fit_is_not_submitted_again(passed: timedelta) -> None:
    story = running()
    story.later(passed)
    story.end(Cause.PREEMPTED)
    step = story.step()
    if passed < 8 * HOUR - 2 * MINUTE:
        assert isinstance(step, Submit)
    else:
        assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE and "preempted" in step.detail


def test_a_delay_that_leads_past_it_is_not_waited_for() -> None:
    story = running(recovery={"node_lost": {"action": "resubmit", "budget": 9, "delay": "1h"}})
    story.later(7 * HOUR)
    story.end(Cause.NODE_LOST)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


def test_the_delay_is_waited_for_where_time_is_left() -> None:
    story = running(recovery={"node_lost": {"action": "resubmit", "budget": 9, "delay": "1h"}})
    story.later(6 * HOUR)
    story.end(Cause.NODE_LOST)
    step = story.step()
    assert isinstance(step, Poll) and step.wake_at == story.now + HOUR


def test_an_end_by_the_helpers_word_ends_the_job() -> None:
    story = running()
    story.end(Cause.DEADLINE, code=193)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


def test_nobody_is_asked_about_what_could_not_be_done() -> None:
    story = running()
    story.later(9 * HOUR)
    story.end(Cause.OUT_OF_MEMORY)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


def test_a_hold_counts_and_its_answer_past_the_deadline_starts_nothing() -> None:
    story = running()
    story.end(Cause.OUT_OF_MEMORY)
    story.hold()
    story.later(9 * HOUR)
    assert isinstance(story.step(), Held)
    story.lift()
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


@pytest.mark.parametrize("cause", [Cause.TIMED_OUT, Cause.PREEMPTED, Cause.NODE_LOST, Cause.VANISHED])
def test_a_rule_that_fails_the_job_gives_way_to_the_deadline(cause: Cause) -> None:
    # given a job whose rule for this end is to fail
    fails = {"recovery": {cause.value: {"action": "fail"}}}
    early, late = running(**fails), running(**fails)
    early.later(HOUR)
    late.later(8 * HOUR)
    for story, outcome in ((early, Outcome.FAILED), (late, Outcome.DEADLINE)):
        # when it ends so
        story.end(cause)
        # then the rule counts while there is time, and what ended it is the deadline afterwards
        step = story.step()
        assert isinstance(step, Finish) and step.outcome is outcome and cause.value in step.detail


def test_an_object_that_its_scheduler_may_restart_is_retired_before_the_end() -> None:
    # given a scheduler that restarts what it preempts, and no time for that
    story = running(SCRIPTED)
    story.later(9 * HOUR)
    story.end(Cause.PREEMPTED)
    # when / then
    story.retire()
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


@pytest.mark.parametrize("passed", [HOUR, 9 * HOUR])
def test_an_answer_to_run_it_again_requeues_nothing_within_the_margin(passed: timedelta) -> None:
    # given a job that is held while its object could be requeued, as its rule says
    story = running(SCRIPTED, recovery={"timed_out": {"action": "requeue", "budget": 1}})
    story.tell(HoldOpened(hold="h4", why="a person is to look", n=1, restart=0))
    story.end(Cause.TIMED_OUT)
    story.later(passed)
    # when
    story.lift()
    # then
    assert isinstance(story.step(), Requeue if passed == HOUR else Retire)


@pytest.mark.parametrize(
    ("cause", "code", "spec", "outcome"),
    [
        (Cause.COMPLETED, 0, {}, Outcome.SUCCEEDED),
        (Cause.FAILED, 1, {}, Outcome.FAILED),
        (Cause.FAILED, 3, {"failed": {"action": "resubmit", "budget": 9}, "final_exit_codes": [3]}, Outcome.FAILED),
        (Cause.FAILED, 1, {"failed": {"action": "resubmit", "budget": 9}}, Outcome.DEADLINE),
        (Cause.FAILED, 1, {"failed": {"action": "hold"}}, Outcome.DEADLINE),
    ],
)
def test_success_and_a_failure_that_ends_the_job_stay_what_they_are(
    cause: Cause, code: int, spec: dict[str, Any], outcome: Outcome
) -> None:
    story = running(recovery=spec)
    story.later(9 * HOUR)
    story.end(cause, code=code)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is outcome


def test_a_launch_that_never_claimed_begins_no_time() -> None:
    # given an object that was seen to run, and whose helper could not come up
    story = running()
    story.end(Cause.LAUNCH_FAILED)
    # when a long time passes
    story.later(9 * HOUR)
    # then there is all of the time
    assert time_left(story.state, story.now) == 8 * HOUR
    assert isinstance(story.step(), Submit)


def test_an_execution_that_nobody_saw_running_began_before_its_end() -> None:
    # given one that has exited, and no supervisor saw it before
    story = Story({"deadline": TERMS}, PLAIN)
    story.submit()
    story.later(HOUR)
    story.end(Cause.PREEMPTED, code=1)
    story.later(7 * HOUR)
    # then / when
    assert time_left(story.state, story.now) == HOUR
    story.later(HOUR)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


def test_what_the_helper_said_of_the_time_counts_for_a_reopening_too() -> None:
    # given a helper that knew of an earlier beginning than the record does
    story = running()
    story.later(HOUR)
    story.end(Cause.DEADLINE, code=193)
    assert time_left(story.state, story.now) == 7 * HOUR
    # then
    assert leaves_no_time(story.state, story.now)


def test_a_job_that_is_suspended_with_no_time_left_is_over() -> None:
    story = running()
    story.tell(StopRequested(who="ada", intent="suspend"))
    story.later(8 * HOUR)
    story.end(Cause.SUSPENDED)
    step = story.step()
    assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


@pytest.mark.parametrize("passed", [HOUR, 9 * HOUR])
def test_a_reopened_generation_has_the_deadline_that_it_had(passed: timedelta) -> None:
    story = running()
    story.end(Cause.FAILED, code=1)
    story.tell(Finished(outcome=Outcome.FAILED))
    story.later(passed)
    story.tell(Reopened(who="ada", after=Outcome.FAILED))
    step = story.step()
    if passed == HOUR:
        assert isinstance(step, Append) and isinstance(step.fact, HoldOpened)
    else:
        assert isinstance(step, Finish) and step.outcome is Outcome.DEADLINE


def test_without_a_deadline_nothing_is_ever_over() -> None:
    story = Story({}, PLAIN)
    story.submit()
    story.run()
    assert time_left(story.state, story.now) is None and not leaves_no_time(story.state, story.now + 9999 * HOUR)
    assert terms_of(story.state) is None


LIMITS = [
    (None, HOUR, None),
    (2 * HOUR, HOUR, HOUR + LIMIT_GRACE),
    (HOUR, 2 * HOUR, HOUR),
    (timedelta(seconds=90), HOUR, timedelta(seconds=90)),
    (HOUR, -HOUR, LIMIT_GRACE),
]


@pytest.mark.parametrize(("own", "left", "given"), LIMITS)
def test_a_time_limit_is_little_longer_than_what_is_left(
    own: timedelta | None, left: timedelta, given: timedelta | None
) -> None:
    assert within_time_left(Resources(time_limit=own), left).time_limit == given
    assert within_time_left(Resources(time_limit=own), None).time_limit == own


def test_a_submission_carries_its_terms_and_a_time_limit_behind_its_deadline() -> None:
    # given a job of 8 hours, preempted after six and a half, in another minute's midst
    story = running(resources={"time_limit": "3h"})
    story.later(6 * HOUR + 30 * MINUTE + timedelta(seconds=20))
    story.end(Cause.PREEMPTED)
    # when
    story.intend()
    assert story.state.opened is not None and story.state.newest is not None
    request = request_of("digits", "id", story.state.opened, story.state.newest, {}, lambda: True, story.state)
    # then
    terms = request.document.deadline
    assert terms is not None and (terms.budget, terms.margin, terms.opened_at) == (8 * HOUR, 2 * MINUTE, None)
    assert terms.now == story.now.timestamp()
    assert request.resources.time_limit == HOUR + 30 * MINUTE + timedelta(seconds=40)
    assert "--time=0-01:30:40" in sbatch_options(request, {}, "log", None)
    assert Submission.decode(request.document.encode(), "it") == request.document


@pytest.mark.parametrize("deadline", [None, TERMS])
def test_a_time_limit_of_the_jobs_own_is_handed_on_as_it_is(deadline: dict[str, Any] | None) -> None:
    story = Story({"resources": {"time_limit": "90s"}, "deadline": deadline}, PLAIN)
    story.intend()
    assert story.state.opened is not None and story.state.newest is not None
    request = request_of("digits", "id", story.state.opened, story.state.newest, {}, lambda: True, story.state)
    assert (b"deadline" in request.document.encode()) == (deadline is not None)
    assert "--time=0-00:01:30" in sbatch_options(request, {}, "log", None)


def test_the_plan_shows_it() -> None:
    notes = Story({"deadline": TERMS}, PLAIN).opening().plan.notes
    assert any(note.startswith("deadline: 8h 0min from the claim of its first execution") for note in notes)


@pytest.mark.parametrize("type", ["local", "slurm"])
def test_a_site_may_cap_budgets(type: str, tmp_path: Path) -> None:
    spec = JobSpec.read({"lineage": "digits", "command": ["true"], "deadline": TERMS}, "it")
    settings = {"type": type, "max_deadline": "4h"}
    if type == "local":
        settings["state_folder"] = str(tmp_path)
    told = job_refusal(settings, spec, tmp_path)
    assert told is not None and told.startswith("deadline.budget 8h 0min is longer than the 4h 0min")
    assert job_refusal({**settings, "max_deadline": "8h"}, spec, tmp_path) is None
