"""What a person reads of a hold: the name of its run, and the page above the form."""

from __future__ import annotations

from datetime import timedelta

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Cessation, Ended, HoldOpened
from prefect_dispatch.pictures.hold_page import hold_page, short_reason
from prefect_dispatch.testing.story import BEGIN, Story, object_of, token_of

ONE = {"recovery": {"preempted": {"action": "resubmit", "budget": 1}, "failed": {"action": "hold"}}}

NO_PROGRESS = {"recovery": {"no_progress": 2, "preempted": {"action": "resubmit", "budget": 9}}}


def story_held(spec: dict, *causes: Cause) -> Story:
    story = Story(spec)
    for n, cause in enumerate(causes, start=1):
        story.submit()
        story.run(n)
        story.end(cause, n, published=0)
    story.hold()
    return story


@pytest.mark.parametrize(
    ("spec", "causes", "reason"),
    [
        (ONE, [Cause.FAILED], "failed"),
        (ONE, [Cause.PREEMPTED, Cause.PREEMPTED], "budget for preempted spent"),
        ({**ONE, "shared_checkpoint": True}, [Cause.PREEMPTED], "preempted, shared checkpoint"),
        (NO_PROGRESS, [Cause.PREEMPTED] * 2, "2 executions without a new save"),
        (ONE, [Cause.OUT_OF_MEMORY], "out of memory"),
    ],
)
def test_the_name_of_a_run_says_in_few_words_why_it_is_held(spec, causes, reason):
    assert short_reason(story_held(spec, *causes).state) == reason


def test_a_submission_that_nobody_can_account_for_is_named():
    story = Story(ONE)
    story.submit()
    story.tell(HoldOpened(hold="h9", why="…", n=1, token=token_of(1)))
    assert short_reason(story.state) == "submission 1 is not accounted for"
    assert short_reason(Story(ONE).state) == ""


def test_the_page_tells_what_a_person_must_know():
    # given
    story = story_held({**ONE, "shared_checkpoint": True}, Cause.PREEMPTED)
    hold = story.state.hold
    assert hold is not None
    answer = Cessation(hold=hold.opened.hold, object=object_of(1), answer="running", detail="node1: pid 7")
    story.tell(answer)
    saves = [(Publication(Epoch(0, 1, 0), step, f"exec/a/step-{step}"), None) for step in (5, 4, 3, 2, 1)]
    saves[0] = (saves[0][0], hold.at - timedelta(minutes=5))
    # when
    page = hold_page("digits", story.state, story.entries, saves)
    # then
    assert page.startswith("**digits** is held: preempted")
    assert f"| Hold {hold.opened.hold} | since {BEGIN.date()}" in page
    assert "| What ended | g0n1r0 as preempted" in page
    assert "| The rule | would resubmit; 1 preempted, budget 1 |" in page
    assert "| Save 1 | g0n1r0 step 5, 5min before the hold |" in page
    assert "| Save 3 | g0n1r0 step 3 |" in page
    assert "step 2 |" not in page
    assert "| The site said | running: node1: pid 7; " in page
    assert "| Waits until | " in page


def test_no_text_of_a_job_becomes_markup():
    # given
    story = Story(ONE)
    story.submit()
    story.run()
    story.tell(Ended(n=1, restart=0, cause=Cause.FAILED, detail="a|b\n[x](http://evil) <b>"))
    story.hold()
    # when
    page = hold_page("digits", story.state, story.entries, [])
    # then
    assert "http://" not in page
    assert "<b>" not in page
    assert all(line.count("|") == 3 for line in page.splitlines() if line.startswith("|"))
    assert "| Saves | none that can be seen |" in page


def test_what_is_too_long_for_a_cell_goes_on_in_the_next_row():
    # given a site that answers at length
    story = story_held({**ONE, "shared_checkpoint": True}, Cause.PREEMPTED)
    hold = story.state.hold
    assert hold is not None
    detail = "node1: /opt/site/job-gone found process 4711 of user ada, which began before the end; node2: no answer"
    story.tell(Cessation(hold=hold.opened.hold, object=object_of(1), answer="unknown", detail=detail))
    # when
    page = hold_page("digits", story.state, story.entries, [])
    # then no cell is wider than the window that it is read in, and nothing is lost
    cells = [line.split(" | ")[1].removesuffix(" |") for line in page.splitlines() if line.startswith("| ")]
    assert max(map(len, cells)) <= 46
    assert f"unknown: {detail}" in " ".join(cells)
