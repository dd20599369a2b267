"""``prefect-dispatch record``: the facts of a lineage."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from prefect_dispatch.cli.output import json_text, print_table, report_faults, without_values
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.errors import UsageError
from prefect_dispatch.model.facts import Entry
from prefect_dispatch.pictures.history import history_of

PUBLISHED_FIELDS = (
    "format",
    "seq",
    "at",
    "generation",
    "kind",
    "n",
    "restart",
    "state",
    "cause",
    "exit",
    "hold",
    "stands_for",
    "lifted_by",
    "resolution",
    "answer",
    "intent",
    "by_generation",
    "parent",
    "outcome",
    "floor",
    "restarts_allowed",
    "published",
)
"""The fields that an export may show: no names of people, hosts, paths, commands or free text."""
_STAMP = ("format", "seq", "at", "by", "nonce", "generation", "kind")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, all of each fact")
    parser.add_argument(
        "--export", metavar="FILE", type=Path, help="write a copy fit for publishing, a JSON line a fact"
    )
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    record, _ = existing_record(record_root_of(options), options.lineage)
    entries = record.entries()
    if options.export is not None:
        _export(options.export, entries)
    elif options.json:
        for entry in entries:
            print(json_text(without_values(entry.document())))
    else:
        _show(entries)
    return report_faults(history_of(entries, None), record)


def _show(entries: list[Entry]) -> None:
    print_table(
        [
            {
                "seq": str(entry.seq),
                "at": entry.at.isoformat(timespec="seconds"),
                "generation": str(entry.generation),
                "fact": entry.fact.kind,
                "what": _words(entry),
            }
            for entry in entries
        ]
    )


def _words(entry: Entry) -> str:
    body: dict[str, Any] = entry.document()
    shown = {name: value for name, value in body.items() if name not in _STAMP and not isinstance(value, (dict, list))}
    if body.get("object"):
        shown["object"] = body["object"]["id"]
    # A zero says nothing, but for a parent: the first generation is one.
    said = {name: value for name, value in shown.items() if value or (name == "parent" and value is not None)}
    leading = {name: said[name] for name in ("parent",) if name in said}
    return ", ".join(f"{name} {value}" for name, value in {**leading, **said}.items())


def _export(path: Path, entries: list[Entry]) -> None:
    lines = [
        json.dumps({name: value for name, value in entry.document().items() if name in PUBLISHED_FIELDS})
        for entry in entries
    ]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise UsageError(f"export {str(path)!r} exists; name a new file") from None
    print(f"{len(lines)} facts written to {path}")
