"""The tables that people look at, as rows of text: in artifacts and on the command line alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.identity import short_digest
from prefect_dispatch.model.plan import Plan, Reference
from prefect_dispatch.model.recovery import Rule
from prefect_dispatch.pictures.history import ExecutionRow, resumed_words

_REFERENCES = {
    Reference.SPEC: "the spec",
    Reference.OPENING: "the opening",
    Reference.FIRST_EXECUTION: "the first execution",
}


def plan_table(plan: Plan) -> list[dict[str, str]]:
    """A plan as tables show it: one row per cause."""
    return [
        {
            "cause": str(row.cause),
            "declared": describe_rule(row.declared),
            "effective": describe_rule(row.effective),
            "budget": str(row.effective.budget) if row.effective.recovers else "",
            "why": row.why,
        }
        for row in plan.rows
    ]


def identity_table(plan: Plan, digests: Mapping[str, str]) -> list[dict[str, str]]:
    """An identity as tables show it: one row per field. Values are never shown, their digests are.

    Args:
        plan: where each field comes from.
        digests: the digests that are known.
    """
    return [
        {
            "identity": row.field,
            "from": row.source,
            "digest": short_digest(digests[row.field]) if row.field in digests else "",
            "held against": _REFERENCES[row.reference],
            "why": row.why,
        }
        for row in plan.identity
    ]


def describe_rule(rule: Rule) -> str:
    """A rule in a few words."""
    delay = f" after {describe_duration(rule.delay)}, growing" if rule.delay else ""
    return f"{rule.action}{delay}"


def table_row(row: ExecutionRow) -> dict[str, str]:
    """One execution as tables show it."""
    return {
        "epoch": str(row.epoch),
        "ended as": str(row.cause) if row.cause is not None else f"({row.state})",
        "resumed from": resumed_words(row),
        "saves": f"{row.saves}, to step {row.newest_step}" if row.newest_step is not None else "0",
        "lived beside the next": f"{row.overlap.total_seconds():.1f} s" if row.overlap is not None else "",
        "started": _moment(row.started_at),
        "ended": _moment(row.ended_at),
        "attempt": row.attempt,
    }


def _moment(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else ""
