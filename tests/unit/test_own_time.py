"""A process waits by a time line of its own, from when it first saw what it waits after."""

from __future__ import annotations

from datetime import timedelta

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.supervisor.own_time import OwnTime
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from prefect_dispatch.testing.story import Story


def test_a_delay_counts_from_its_own_end_though_another_delay_had_the_same_last_moment():
    # given that clocks apart make the delay after a second end pass, by the record, when that after the first did
    story = Story(
        {
            "recovery": {
                "preempted": {"action": "resubmit", "budget": 3, "delay": "80s"},
                "duplicate": {"action": "resubmit", "budget": 3, "delay": "20s"},
            }
        },
        SCRIPTED.model_copy(update={"restarts": False}),
    )
    clock = ManualClock(story.now)
    own = OwnTime(clock)
    story.submit()
    story.run()
    story.end(Cause.PREEMPTED)
    first = story.state.not_before
    own.of(story.state)
    clock.turn(timedelta(seconds=80))
    story.later(timedelta(seconds=80))
    story.submit()
    story.run(n=2)
    story.later(timedelta(seconds=-20))
    story.end(Cause.DUPLICATE, n=2)
    assert story.state.not_before == first
    # when the process sees the second end
    seen = own.of(story.state)
    # then it waits for its whole delay
    assert seen.not_before == own.now() + timedelta(seconds=20)
