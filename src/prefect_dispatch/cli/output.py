"""How commands print: tables for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prefect_dispatch.model.timeline_values import printable

MOST_CELL = 100


def print_json(value: Any) -> None:
    """Print one JSON value, indented."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows under the names of their columns. Control characters of jobs do not reach the terminal."""
    if not rows:
        return
    names = list(rows[0])
    cells = [names, *([printable(row.get(name, ""), MOST_CELL) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
