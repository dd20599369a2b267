"""Rules are those of the design unless a spec says otherwise, and delays grow to their limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.recovery import DEFAULT_RULES, Recovery, Rule


def test_the_defaults_are_the_design_s_table() -> None:
    def row(cause: Cause) -> tuple[str, int]:
        rule = Recovery().rule(cause)
        return rule.action, rule.budget

    assert {cause.value: row(cause) for cause in Cause} == {
        "preempted": ("requeue", 100),
        "node_lost": ("requeue", 20),
        "timed_out": ("resubmit", 50),
        "launch_failed": ("resubmit", 3),
        "vanished": ("resubmit", 3),
        "suspended": ("hold", 0),
        "failed": ("fail", 0),
        "out_of_memory": ("hold", 0),
        "no_capacity": ("hold", 0),
        "unusable_checkpoint": ("hold", 0),
        "identity_changed": ("hold", 0),
        "unpublishable": ("hold", 0),
        "duplicate": ("hold", 0),
        "stopped": ("finish", 0),
        "deadline": ("finish", 0),
        "completed": ("finish", 0),
    }
    assert DEFAULT_RULES[Cause.LAUNCH_FAILED].delay == timedelta(seconds=30)
    assert DEFAULT_RULES[Cause.VANISHED].delay_after(2) == timedelta(minutes=2)


def test_a_rule_beside_the_limits_is_taken_and_the_others_stay() -> None:
    recovery = Recovery.model_validate({"failed": {"action": "resubmit", "budget": 2}, "no_progress": 3})
    assert recovery.rule(Cause.FAILED) == Rule(action=Action.RESUBMIT, budget=2)
    assert recovery.rule(Cause.PREEMPTED) == DEFAULT_RULES[Cause.PREEMPTED]
    assert Recovery.model_validate(recovery.model_dump(mode="json")) == recovery


@given(
    some.timedeltas(timedelta(milliseconds=1), timedelta(hours=1)),
    some.floats(1, 100),
    some.timedeltas(timedelta(hours=1), timedelta(days=36500)),
)
def test_a_delay_begins_as_written_and_grows_to_its_limit(delay: timedelta, backoff: float, limit: timedelta) -> None:
    rule = Rule(action=Action.RESUBMIT, budget=9, delay=delay, backoff=backoff, max=limit)
    delays = [rule.delay_after(spent) for spent in (0, 1, 2, 5, 1000, 999_999)]
    assert delays[0] == delay
    assert delays == sorted(delays)
    assert delays[1] == min(limit, timedelta(seconds=delay.total_seconds() * backoff))
    assert all(each <= limit for each in delays)
    if backoff > 1.1:
        assert delays[-1] == limit


def test_no_delay_stays_none() -> None:
    assert Rule(action=Action.RESUBMIT, budget=9).delay_after(5) == timedelta(0)


def test_final_exit_codes_are_kept_once_and_in_order() -> None:
    assert Recovery(final_exit_codes=(3, 1, 3)).final_exit_codes == (1, 3)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"completed": {"action": "hold"}}, "recovery.completed cannot have a rule: it ends the job as completed"),
        ({"stopped": {"action": "hold"}}, "recovery.stopped cannot have a rule"),
        ({"deadline": {"action": "hold"}}, "recovery.deadline cannot have a rule"),
        ({"failed": {"action": "finish"}}, "recovery.failed.action 'finish' is not a rule; use requeue"),
        ({"preempted": {"action": "requeue"}}, "recovery.preempted needs a budget of at least 1 to requeue"),
        ({"failed": {"action": "resubmit", "budget": 0}}, "recovery.failed needs a budget of at least 1 to resubmit"),
        ({"failed": {"action": "hold", "delay": "2h"}}, "delay 7200s is longer than max 3600s; raise max"),
        ({"failed": {"action": "hold", "budget": 1_000_000}}, "less than or equal to 999999"),
        ({"failed": {"action": "hold", "backoff": 0.5}}, "greater than or equal to 1"),
        ({"failed": {"action": "hold", "backoff": float("nan")}}, "backoff"),
        ({"final_exit_codes": [190]}, "recovery.final_exit_codes 190 is the helper's own code"),
        ({"final_exit_codes": [195]}, "recovery.final_exit_codes 195 is the helper's own code"),
        ({"final_exit_codes": [0]}, "greater than or equal to 1"),
        ({"final_exit_codes": [1, "a"]}, "valid integer"),
        ({"final_exit_codes": [[1]]}, "valid integer"),
        ({"final_exit_codes": [True]}, "True is not a number"),
    ],
)
def test_other_rules_are_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Recovery.model_validate(document)
