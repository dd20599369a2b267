"""The plan shows each substitution, and shows none where there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import SCHEDULER_RESTARTS, Action, Cause
from prefect_dispatch.model.plan import Plan, plan
from prefect_dispatch.model.recovery import FIXED, Recovery, Rule
from prefect_dispatch.model.spec import JobSpec, Resources

SLURM = Capabilities(scheduler="slurm", requeue=True, time_limit=True)
LOCAL = Capabilities(scheduler="local", requeue=False, time_limit=False, nodes=1)

rules = some.builds(
    Rule,
    action=some.sampled_from([Action.REQUEUE, Action.RESUBMIT, Action.HOLD, Action.FAIL]),
    budget=some.integers(1, 5),
    delay=some.sampled_from([timedelta(0), timedelta(seconds=30)]),
)
recoveries = some.builds(
    Recovery,
    rules=some.dictionaries(some.sampled_from([cause for cause in Cause if cause not in FIXED]), rules),
    no_progress=some.one_of(some.none(), some.integers(1, 3)),
)
resources = some.builds(
    Resources, nodes=some.integers(1, 2), time_limit=some.one_of(some.none(), some.just(timedelta(hours=1)))
)
capabilities = some.builds(
    Capabilities, scheduler=some.just("any"), requeue=some.booleans(), time_limit=some.booleans(), nodes=some.just(1)
)


def spec(recovery: Recovery, needs: Resources | None = None) -> JobSpec:
    return JobSpec(lineage="a", command=("x",), recovery=recovery, resources=needs or Resources())


def planned(**recovery: Any) -> Plan:
    return plan(spec(Recovery.model_validate(recovery)), SLURM, root_visible=True)


@given(recoveries, resources, capabilities, some.booleans())
def test_a_substitution_is_shown_exactly_where_there_is_one(
    recovery: Recovery, needs: Resources, able: Capabilities, visible: bool
) -> None:
    made = plan(spec(recovery, needs), able, root_visible=visible)
    # every cause has its row, with the rule that the spec or the default declares
    assert [row.cause for row in made.rows] == list(Cause)
    assert all(row.declared == recovery.rule(row.cause) for row in made.rows)
    # and what differs says why
    assert all(bool(row.why) is (row.declared != row.effective) for row in made.rows)
    assert made.substitutions == tuple(row for row in made.rows if row.declared != row.effective)
    # and no budget is changed, nor an end into a recovery
    assert all(row.effective.budget == row.declared.budget for row in made.rows)
    assert all(row.effective.recovers is row.declared.recovers for row in made.rows)
    # and what the scheduler or the root does not have is noted
    notes = " ".join(made.notes)
    assert ("no_progress" in notes) is made.count_every_execution is (recovery.no_progress is not None and not visible)
    assert ("time_limit" in notes) is (needs.time_limit is not None and not able.time_limit)
    assert ("nodes" in notes) is (needs.nodes > 1)
    # and it survives the record
    assert Plan.model_validate_json(made.model_dump_json()) == made


@given(recoveries, capabilities)
def test_a_scheduler_restarts_by_itself_only_if_every_such_cause_says_requeue(
    recovery: Recovery, able: Capabilities
) -> None:
    made = plan(spec(recovery), able, root_visible=True)
    every = all(recovery.rule(cause).action is Action.REQUEUE for cause in SCHEDULER_RESTARTS)
    assert made.scheduler_restarts is (able.requeue and every)
    requeues = [cause for cause in Cause if made.rule(cause).action is Action.REQUEUE]
    assert made.scheduler_restarts or requeues == []


def test_a_scheduler_without_requeue_resubmits_and_says_so() -> None:
    made = plan(spec(Recovery()), LOCAL, root_visible=True)
    assert [row.cause for row in made.substitutions] == [Cause.PREEMPTED, Cause.NODE_LOST]
    assert made.rule(Cause.PREEMPTED) == Rule(action=Action.RESUBMIT, budget=100)
    assert made.substitutions[0].why == "local cannot run the same object again"


def test_one_cause_that_says_otherwise_turns_the_one_switch_off_for_all() -> None:
    made = planned(node_lost={"action": "hold"}, timed_out={"action": "requeue", "budget": 5})
    assert [row.cause for row in made.substitutions] == [Cause.PREEMPTED, Cause.TIMED_OUT]
    assert made.substitutions[0].why == "slurm has one requeue switch for an object, and node_lost says hold"


def test_a_scheduler_that_restarts_by_itself_keeps_no_delay() -> None:
    made = planned(preempted={"action": "requeue", "budget": 5, "delay": "30s"})
    assert [row.cause for row in made.substitutions] == [Cause.PREEMPTED]
    assert made.rule(Cause.PREEMPTED).delay == timedelta(0)
    assert "knows no delay" in made.substitutions[0].why


def test_defaults_on_a_scheduler_that_can_do_everything_are_used_as_they_are() -> None:
    assert planned().substitutions == () and planned().notes == ()
