"""Placeholders in a lineage's name: a job that is started by a schedule has a lineage of its own each time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from prefect_dispatch.errors import SpecError, UsageError
from prefect_dispatch.format.names import check_lineage

DATE = "{date}"
"""The day for which a run was scheduled, in UTC, as in ``2026-01-31``."""
FLOW_RUN_ID = "{flow_run_id}"
"""The id of the flow run that opens the lineage."""
_EXAMPLES = {DATE: "2026-01-31", FLOW_RUN_ID: "00000000-0000-0000-0000-000000000000"}
_ANY = re.compile(r"\{[^{}]*\}")


def check_name(name: str) -> str:
    """Return the name if it is a lineage's, or becomes one as soon as its placeholders are filled in.

    Raises:
        UsageError: it is not, or has a placeholder that there is not.
    """
    unknown = next((each for each in _ANY.findall(name) if each not in _EXAMPLES), None)
    if unknown is not None:
        raise UsageError(f"lineage {name!r} has {unknown}; the placeholders are {DATE} and {FLOW_RUN_ID}")
    filled = _fill(name, _EXAMPLES)
    if filled == name:
        return check_lineage(name)
    try:
        check_lineage(filled)
    except UsageError as error:
        raise UsageError(f"lineage {name!r} becomes a name such as {filled!r}: {error}") from None
    return name


def fill(name: str, at: datetime, flow_run_id: str | None) -> str:
    """The lineage that a name with placeholders means.

    Args:
        name: the name, checked.
        at: when the run was scheduled to start; the moment of its start for any other.
        flow_run_id: the flow run; None where there is none.

    Raises:
        SpecError: the name asks for a flow run, and there is none.
    """
    if FLOW_RUN_ID in name and flow_run_id is None:
        raise SpecError(f"lineage {name!r} has {FLOW_RUN_ID}, and no flow run opens it here; start it as a flow run")
    return _fill(name, {DATE: at.astimezone(UTC).date().isoformat(), FLOW_RUN_ID: flow_run_id or ""})


def _fill(name: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        name = name.replace(placeholder, value)
    return name
