"""The table and the JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rows.line import Line

_HEADS = ("row", "what", "ours", "bare", "ratio", "pairs", "target", "figure", "met")


def as_json(facts: Mapping[str, Any], lines: Sequence[Line]) -> str:
    """The machine's facts and the lines, as JSON."""
    return json.dumps({"machine": dict(facts), "lines": [line.encode() for line in lines]}, indent=2)


def as_table(facts: Mapping[str, Any], lines: Sequence[Line]) -> str:
    """The machine's facts, the table, and the notes below it."""
    head = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items())
    cells = [_HEADS, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADS))]
    body = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    body.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{line.row}: {line.what}: {line.note}" for line in lines if line.note]
    return "\n".join([head, "", *body, "", *notes])


def _cells(line: Line) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[line.met]
    return (
        line.row,
        line.what,
        _number(line.ours, line.unit),
        _number(line.bare, line.unit),
        _number(line.ratio, "×"),
        str(line.pairs or ""),
        "" if line.target is None else str(line.target),
        "" if line.target is None else _number(line.figure, line.target.unit),
        "not built yet" if line.ours is None else met,
    )


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f} {unit}"
