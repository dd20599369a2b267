"""docs/testing.md tells who is killed where: of every step and everybody, by a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefect_dispatch.failpoint import Failpoint

REPOSITORY = Path(__file__).parents[2]
SUPERVISOR = {
    "record-id", "open-mark", "fact", "open-unmark", "fold", "submit", "submitted", "stop", "set-restarts", "requeue"
}  # fmt: skip
"""Where a supervisor comes by, of the failpoints that lie at the steps of the protocol."""
WHO = ["flow", "both", "worker", "server", "poller"]
REASONS = re.compile(r"(no part in it|it has none|as (flow|both))(: [\w ]+)?")


@pytest.fixture
def rows() -> list[list[str]]:
    section = (
        (REPOSITORY / "docs" / "testing.md").read_text().partition("## Who is killed where\n")[2].partition("\n## ")[0]
    )
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert table[0] == ["what is done", "steps", *WHO]
    return table[2:]


def test_every_step_of_a_supervisor_and_in_prefect_has_its_row(rows: list[list[str]]) -> None:
    named = {step for row in rows for step in re.findall(r"`([a-z.-]+)`", row[1])}
    assert named == SUPERVISOR | {point.value for point in Failpoint if point.value.startswith("prefect.")}
    assert named <= {point.value for point in Failpoint}


def test_of_everybody_there_is_a_test_or_a_reason_why_not(rows: list[list[str]]) -> None:
    wrong = []
    for row in rows:
        assert len(row) == 2 + len(WHO), row
        for who, cell in zip(WHO, row[2:], strict=True):
            test = re.fullmatch(r"`([\w/]+\.py)::(\w+)`", cell)
            if test is None:
                wrong += [] if REASONS.fullmatch(cell) else [f"{row[0]}, {who}: {cell!r}"]
            elif not re.search(rf"^def {test[2]}\b", (REPOSITORY / "tests" / test[1]).read_text(), re.MULTILINE):
                wrong.append(f"{row[0]}, {who}: {test[2]} is not there")
    assert wrong == []
