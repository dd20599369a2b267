"""The plan: what a spec's rules become on a given scheduler, decided and shown before anything starts."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.causes import SCHEDULER_RESTARTS, Action, Cause
from prefect_dispatch.model.recovery import SHARED_HOLD_FOR, Rule
from prefect_dispatch.model.spec import DeadlineSpec, JobSpec


class PlanRow(BaseModel):
    """What happens after one cause.

    Attributes:
        cause: why an execution ended.
        declared: the rule of the spec, or the default.
        effective: the rule that will be used.
        stands_for: what the effective rule, a hold, stands in for: it applies once the hold is lifted.
        why: why they differ; empty where they do not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cause: Cause
    declared: Rule
    effective: Rule
    stands_for: Rule | None = None
    why: str = ""


class Reference(enum.StrEnum):
    """What a field of the identity is held against by each execution."""

    SPEC = "spec"
    """The value that stands in the spec."""
    OPENING = "opening"
    """What its provider says when the lineage is opened."""
    FIRST_EXECUTION = "first execution"
    """What its provider says in the first execution, since the supervisor cannot look there."""


class IdentityRow(BaseModel):
    """One field of the identity.

    Attributes:
        field: its name.
        source: its provider; ``literal`` for a value that stands in the spec.
        reference: what each execution's value is held against.
        why: why it is not known at the opening; empty where it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    source: str
    reference: Reference
    why: str = ""


class Plan(BaseModel):
    """What a spec becomes on a given scheduler.

    Attributes:
        scheduler: the kind of scheduler.
        rows: one per cause, in the order of :class:`Cause`.
        scheduler_restarts: whether the scheduler may restart the object by itself.
        count_every_execution: whether ``no_progress`` counts executions with saves too, since they cannot be seen.
        notes: whatever else is not as the spec says.
        identity: one row per field of the identity, in their order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str
    rows: tuple[PlanRow, ...]
    scheduler_restarts: bool
    count_every_execution: bool
    notes: tuple[str, ...] = ()
    identity: tuple[IdentityRow, ...] = ()

    def rule(self, cause: Cause) -> Rule:
        """The effective rule for a cause."""
        return next(row.effective for row in self.rows if row.cause is cause)

    def recovery(self, cause: Cause) -> Rule:
        """The rule by which an end of this cause is counted and recovered from: where a hold stands in, that one."""
        row = next(row for row in self.rows if row.cause is cause)
        return row.stands_for or row.effective

    def holds_first(self, cause: Cause) -> bool:
        """Whether a hold stands in for the cause's rule."""
        return any(row.cause is cause and row.stands_for is not None for row in self.rows)

    @property
    def substitutions(self) -> tuple[PlanRow, ...]:
        """The rows in which something else than the declared rule is used."""
        return tuple(row for row in self.rows if row.why)


def plan(
    spec: JobSpec, capabilities: Capabilities, *, root_visible: bool, unseen: Mapping[str, str] | None = None
) -> Plan:
    """Work out what a spec's rules become.

    Args:
        spec: the job.
        capabilities: what its scheduler can do.
        root_visible: whether the supervisor can list the checkpoint root.
        unseen: for each field of the identity whose provider the supervisor cannot ask, why.

    Returns:
        A rule for each cause. Where a rule needs what it cannot have, its nearest safe form stands with the reason.
    """
    may_restart, why_not = _restart_policy(spec, capabilities)
    rows = tuple(_row(cause, spec, capabilities, why_not) for cause in Cause)
    notes: list[str] = []
    if spec.shared_checkpoint:
        notes.append(
            "shared_checkpoint: no second execution starts without a person's or the site's word, "
            "not after a reopening or a supersession either; whoever waits for one longer than "
            f"{describe_duration(SHARED_HOLD_FOR)} ends as hold_expired, and can be reopened"
        )
    blind = spec.recovery.no_progress is not None and not root_visible
    if blind:
        notes.append(
            f"no_progress: {spec.recovery.no_progress} counts every execution, with saves or without, "
            "since this supervisor cannot see the checkpoint root"
        )
    if spec.deadline is not None:
        notes.append(_deadline_note(spec.deadline))
    if spec.resources.time_limit is not None and not capabilities.time_limit:
        notes.append(f"resources.time_limit is not enforced: {capabilities.scheduler} has no time limits")
    if capabilities.nodes is not None and spec.resources.nodes > capabilities.nodes:
        notes.append(
            f"resources.nodes: {spec.resources.nodes} will be refused, since one object of {capabilities.scheduler} "
            f"has at most {capabilities.nodes}"
        )
    return Plan(
        scheduler=capabilities.scheduler,
        rows=rows,
        scheduler_restarts=may_restart,
        count_every_execution=blind,
        notes=tuple(notes),
        identity=_identity_rows(spec, unseen or {}),
    )


def _deadline_note(deadline: DeadlineSpec) -> str:
    since = "its opening, the queue included" if deadline.count_queue else "the claim of its first execution"
    return (
        f"deadline: {describe_duration(deadline.budget)} from {since}, with queue, holds and imports, and never later. "
        f"At {describe_duration(deadline.margin)} left the program gets its notice to save, and nothing is started"
    )


def _identity_rows(spec: JobSpec, unseen: Mapping[str, str]) -> tuple[IdentityRow, ...]:
    providers = spec.identity_providers()
    rows: list[IdentityRow] = []
    for field in spec.identity:
        source, why = providers.get(field), unseen.get(field, "")
        if source is None:
            rows.append(IdentityRow(field=field, source="literal", reference=Reference.SPEC))
        else:
            reference = Reference.FIRST_EXECUTION if why else Reference.OPENING
            rows.append(IdentityRow(field=field, source=source, reference=reference, why=why))
    return tuple(rows)


def _restart_policy(spec: JobSpec, capabilities: Capabilities) -> tuple[bool, str]:
    """A scheduler has one requeue switch for an object: it is on only if every cause behind it says requeue."""
    if spec.shared_checkpoint:
        return False, "with a shared checkpoint no scheduler may run the job again by itself"
    if not capabilities.requeue:
        return False, f"{capabilities.scheduler} cannot run the same object again"
    others = [cause for cause in sorted(SCHEDULER_RESTARTS) if spec.recovery.rule(cause).action is not Action.REQUEUE]
    if others:
        words = " and ".join(f"{cause} says {spec.recovery.rule(cause).action}" for cause in others)
        return False, f"{capabilities.scheduler} has one requeue switch for an object, and {words}"
    return True, ""


def _row(cause: Cause, spec: JobSpec, capabilities: Capabilities, why_not: str) -> PlanRow:
    declared = spec.recovery.rule(cause)
    if spec.shared_checkpoint and declared.recovers:
        resubmit = declared.model_copy(update={"action": Action.RESUBMIT})
        why = "shared_checkpoint: a person or the site must say first that the old processes are gone"
        hold = Rule(action=Action.HOLD)
        return PlanRow(cause=cause, declared=declared, effective=hold, stands_for=resubmit, why=why)
    if declared.action is Action.REQUEUE and why_not:
        resubmit = declared.model_copy(update={"action": Action.RESUBMIT})
        return PlanRow(cause=cause, declared=declared, effective=resubmit, why=why_not)
    if declared.action is Action.REQUEUE and cause in SCHEDULER_RESTARTS and declared.delay:
        at_once = declared.model_copy(update={"delay": timedelta(0)})
        why = f"{capabilities.scheduler} restarts the object by itself, and knows no delay"
        return PlanRow(cause=cause, declared=declared, effective=at_once, why=why)
    return PlanRow(cause=cause, declared=declared, effective=declared)
