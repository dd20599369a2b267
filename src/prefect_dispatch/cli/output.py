"""How commands print: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from prefect_dispatch.errors import MalformedError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.pictures.history import History
from prefect_dispatch.supervisor.record import Record

MOST_CELL = 100
MOST_LINE = 4000


def say(text: str) -> None:
    """Print one line. Control characters of jobs do not reach the terminal."""
    print(printable(text, MOST_LINE))


def say_now(text: str) -> None:
    """Print one line at once: what follows takes long."""
    print(printable(text, MOST_LINE), flush=True)


def report_faults(history: History, record: Record) -> int:
    """Print what of a root or a record could not be read. Returns the exit code: 65 if there is anything."""
    faults = [*history.faults, *([record.unreadable] if record.unreadable else [])]
    for fault in faults:
        print(f"prefect-dispatch: {printable(fault, MOST_LINE)}", file=sys.stderr)
    return MalformedError.exit_code if faults else 0


def without_values(document: Any) -> Any:
    """A document whose ``environment`` shows the names of a job's variables alone: their values are the job's."""
    if isinstance(document, Mapping):
        return {
            name: dict.fromkeys(value, "(not shown)")
            if name == "environment" and isinstance(value, Mapping)
            else without_values(value)
            for name, value in document.items()
        }
    return [without_values(each) for each in document] if isinstance(document, (list, tuple)) else document


def print_json(value: Any) -> None:
    """Print one JSON value, indented."""
    print(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON whose text people can read, and whose control characters, C1 and bidirectional ones too, are escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows under the names of their columns. Control characters of jobs do not reach the terminal."""
    if not rows:
        return
    names = list(rows[0])
    cells = [names, *([printable(row.get(name, ""), MOST_CELL) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
