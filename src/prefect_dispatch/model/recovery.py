"""Recovery: for each cause a rule, with a budget that is counted from the record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from prefect_dispatch.format.durations import write_duration
from prefect_dispatch.format.exit_codes import RESERVED
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.fields import Count, Duration


class Rule(BaseModel):
    """What to do after an execution has ended for one cause.

    Attributes:
        action: requeue, resubmit, hold or fail. (``finish`` is the model's own, for causes that no rule can change.)
        budget: how often, counted from the record; when it is spent the job holds.
        delay: how long to wait before the first time.
        backoff: what the delay is multiplied by each further time.
        max: the longest delay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Annotated[Action, Field(description="requeue, resubmit, hold or fail")]
    budget: Annotated[Count, Field(ge=0, le=999_999, description="How often; then the job holds")] = 0
    delay: Annotated[Duration, Field(description="Wait before the first time")] = timedelta(0)
    backoff: Annotated[float, Field(ge=1, le=100, description="Growth of the delay each further time")] = 2.0
    max: Annotated[Duration, Field(description="The longest delay")] = timedelta(hours=1)

    @model_validator(mode="after")
    def _delay_fits(self) -> Rule:
        if self.delay > self.max:
            raise ValueError(
                f"delay {write_duration(self.delay)} is longer than max {write_duration(self.max)}; raise max"
            )
        return self

    @property
    def recovers(self) -> bool:
        """Whether this rule runs the job again."""
        return self.action in (Action.REQUEUE, Action.RESUBMIT)

    def delay_after(self, spent: int) -> timedelta:
        """The wait before the next time, when this rule was applied ``spent`` times before."""
        if not self.delay:
            return timedelta(0)
        try:
            grown = self.delay.total_seconds() * self.backoff**spent
        except OverflowError:
            return self.max
        return min(timedelta(seconds=min(grown, self.max.total_seconds())), self.max)


SHARED_HOLD_FOR = timedelta(hours=24)
"""How long a hold of a job with a shared checkpoint waits, for a person or for the site's word."""

_LAUNCH = Rule(action=Action.RESUBMIT, budget=3, delay=timedelta(seconds=30))
_HOLD = Rule(action=Action.HOLD)

DEFAULT_RULES: Mapping[Cause, Rule] = MappingProxyType(
    {
        Cause.PREEMPTED: Rule(action=Action.REQUEUE, budget=100),
        Cause.NODE_LOST: Rule(action=Action.REQUEUE, budget=20),
        Cause.TIMED_OUT: Rule(action=Action.RESUBMIT, budget=50),
        Cause.LAUNCH_FAILED: _LAUNCH,
        Cause.VANISHED: _LAUNCH,
        Cause.SUSPENDED: _HOLD,
        Cause.FAILED: Rule(action=Action.FAIL),
        Cause.OUT_OF_MEMORY: _HOLD,
        Cause.NO_CAPACITY: _HOLD,
        Cause.UNUSABLE_CHECKPOINT: _HOLD,
        Cause.IDENTITY_CHANGED: _HOLD,
        Cause.UNPUBLISHABLE: _HOLD,
        Cause.DUPLICATE: _HOLD,
        Cause.STOPPED: Rule(action=Action.FINISH),
        Cause.DEADLINE: Rule(action=Action.FINISH),
        Cause.COMPLETED: Rule(action=Action.FINISH),
    }
)
"""What happens where a spec says nothing."""

FIXED = frozenset({Cause.COMPLETED, Cause.STOPPED, Cause.DEADLINE})
"""Causes that a spec cannot give a rule for: they end the job as what they are."""


def _exit_codes(codes: tuple[int, ...]) -> tuple[int, ...]:
    own = next((code for code in codes if code in RESERVED), None)
    if own is not None:
        raise ValueError(
            f"recovery.final_exit_codes {own} is the helper's own code, and a program's comes out as 1; take it out"
        )
    return tuple(sorted(set(codes)))


def _allow_causes(schema: dict[str, Any]) -> None:
    """Tell of the causes that may stand beside the limits, as :meth:`Recovery._gather_causes` reads them."""
    properties = schema["properties"]
    rule = properties["rules"]["additionalProperties"]
    told = {"description": "The rule for this cause, in the place of one in rules"}
    # Null is "no rule of its own": a form that shows all causes sends that for those which nobody has filled in.
    each = {"anyOf": [{"type": "null", "title": "default"}, {**rule, "title": "rule"}], "default": None, **told}
    ruled = {cause.value: {**each, "title": cause.value} for cause in Cause if cause not in FIXED}
    schema["properties"] = {**properties, **ruled}


class Recovery(BaseModel):
    """A spec's recovery: its own rules by cause, and the limits over all of them.

    Attributes:
        rules: rules by cause, as the spec gives them.
        no_progress: hold after this many executions in a row without a new publication; None for never.
        final_exit_codes: exit codes of the program that are never run again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_allow_causes)

    rules: Annotated[
        Mapping[Cause, Rule], Field(description="Rules by cause; in YAML they may stand beside the limits")
    ] = Field(default_factory=dict)
    no_progress: Annotated[
        Count | None, Field(ge=1, le=999_999, description="Hold after so many executions in a row without a new save")
    ] = None
    final_exit_codes: Annotated[
        tuple[Annotated[Count, Field(ge=1, le=255)], ...],
        AfterValidator(_exit_codes),
        Field(description="Exit codes of the program that are never run again"),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _gather_causes(cls, value: Any) -> Any:
        """A spec writes causes beside the limits: ``{preempted: {action: requeue, budget: 100}, no_progress: 3}``."""
        if not isinstance(value, Mapping):
            return value
        causes = {cause.value for cause in Cause}
        rules = {name: rule for name, rule in value.items() if name in causes and rule is not None}
        rest = {name: entry for name, entry in value.items() if name not in causes}
        if rules and rest.get("rules"):
            raise ValueError("recovery.rules and rules beside it cannot both be given; write each cause once")
        return {**rest, "rules": rules} if rules else rest

    @model_validator(mode="after")
    def _check_rules(self) -> Recovery:
        for cause, rule in self.rules.items():
            if cause in FIXED:
                raise ValueError(f"recovery.{cause} cannot have a rule: it ends the job as {cause}")
            if rule.action is Action.FINISH:
                raise ValueError(f"recovery.{cause}.action 'finish' is not a rule; use requeue, resubmit, hold or fail")
            if rule.recovers and rule.budget < 1:
                raise ValueError(f"recovery.{cause} needs a budget of at least 1 to {rule.action}")
        return self

    def rule(self, cause: Cause) -> Rule:
        """The rule declared for a cause, or its default."""
        return self.rules.get(cause, DEFAULT_RULES[cause])
