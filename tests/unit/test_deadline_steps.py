"""What a total deadline does to the next step, to what a scheduler is handed, and to the plan."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.submission import Submission
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.deadline import is_over, limited, terms_of, time_left
from prefect_dispatch.model.facts import Finished, HoldOpened, Outcome, Reopened
from prefect_dispatch.model.spec import JobSpec, Resources
from prefect_dispatch.model.steps import Append, Finish, Held, Poll, Submit
from prefect_dispatch.schedulers.registry import job_refusal
from prefect_dispatch.schedulers.slurm.script import sbatch_options
from prefect_dispatch.supervisor.request import request_of
from prefect_dispatch.testing.story import BEGIN, Story

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PLAIN = Capabilities(scheduler="plain", requeue=False, time_limit=True)
TERMS: dict[str, Any] = {"budget": "8h", "margin": "2min"}


def running(**spec: Any) -> Story:
    story = Story({"deadline": TERMS, **spec}, PLAIN)
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
    assert isinstance(story.step(), Poll)


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


def test_success_and_failure_stay_what_they_are() -> None:
    for cause, outcome in ((Cause.COMPLETED, Outcome.SUCCEEDED), (Cause.FAILED, Outcome.FAILED)):
        story = running()
        story.later(9 * HOUR)
        story.end(cause, code=0 if cause is Cause.COMPLETED else 1)
        step = story.step()
        assert isinstance(step, Finish) and step.outcome is outcome


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
    assert time_left(story.state, story.now) is None and not is_over(story.state, story.now + 9999 * HOUR)
    assert terms_of(story.state) is None


@pytest.mark.parametrize(("own", "left", "given"), [(None, HOUR, HOUR), (2 * HOUR, HOUR, HOUR), (HOUR, 2 * HOUR, HOUR)])
def test_a_time_limit_is_no_longer_than_what_is_left(own: timedelta | None, left: timedelta, given: timedelta) -> None:
    assert limited(Resources(time_limit=own), left).time_limit == given
    assert limited(Resources(time_limit=own), None).time_limit == own


def test_a_submission_carries_its_terms_and_no_longer_time_limit() -> None:
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
    assert request.resources.time_limit == HOUR + 29 * MINUTE + timedelta(seconds=40)
    # and Slurm, which would round up, is told whole minutes
    assert "--time=0-01:29:00" in sbatch_options(request, {}, "log", None)
    assert Submission.decode(request.document.encode(), "it") == request.document


def test_a_job_without_one_is_handed_what_its_spec_says() -> None:
    story = Story({"resources": {"time_limit": "90s"}}, PLAIN)
    story.intend()
    assert story.state.opened is not None and story.state.newest is not None
    request = request_of("digits", "id", story.state.opened, story.state.newest, {}, lambda: True, story.state)
    assert request.document.deadline is None and b"deadline" not in request.document.encode()
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
