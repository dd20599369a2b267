"""``prefect-dispatch holds``: the open holds of a store, and, when asked to, what the sites say about them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from prefect_dispatch.cli.output import print_json, print_table, say
from prefect_dispatch.cli.places import add_store, record_root_of
from prefect_dispatch.errors import DispatchError, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.facts import Cessation
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.cessation import CessationAnswer, CessationSignal
from prefect_dispatch.schedulers.command_signal import CommandSignal
from prefect_dispatch.supervisor.cessation import Polled, ask_about_holds, signal_for
from prefect_dispatch.supervisor.choices import awaiting
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import known_lineages, open_record
from prefect_dispatch.supervisor.record import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--ask", action="store_true", help="first ask once whether the old processes are gone")
    parser.add_argument(
        "--each",
        choices=("node", "object"),
        default="node",
        help="with --command: run it for each node, or once for all (default: node)",
    )
    parser.add_argument(
        "--command",
        metavar="WORD",
        nargs=argparse.REMAINDER,
        help="with --ask: the site's own command, as the last option; see docs/holds.md",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    record_root = record_root_of(options)
    records = [open_record(record_root, lineage, SystemClock()) for lineage in known_lineages(record_root)]
    answers: Mapping[str, Polled] = {}
    code = 0
    if options.ask:
        own = CommandSignal(command=tuple(options.command), each=options.each) if options.command else None
        answers, code = _ask(records, own)
    elif options.command is not None:
        raise UsageError("--command is for --ask; add it, or leave the command out")
    rows: list[dict[str, Any]] = []
    for record in records:
        try:
            state = record.refresh()
            rows.extend(hold_rows(record.lineage, state, answers.get(record.lineage)))
        except DispatchError as error:
            print(f"prefect-dispatch: {printable(str(error))}", file=sys.stderr)
            code = max(code, int(error.exit_code))
    if options.json:
        print_json(rows)
    elif rows:
        print_table([{name.replace("_", " "): _cell(value) for name, value in row.items()} for row in rows])
        say("to answer one: prefect-dispatch resume LINEAGE --hold ID --run-again | --stop | --from SAVE | --scratch")
    else:
        say(f"nothing is held in {record_root}")
    return code


def hold_rows(lineage: str, state: LineageState, polled: Polled | None = None) -> list[dict[str, Any]]:
    """The hold of a lineage that a person may answer, for scripts; none where there is none.

    Args:
        lineage: its name.
        state: what its record comes to.
        polled: what the site has just said. The record keeps the news alone: of answers that are alike, the first.
    """
    opened = awaiting(state)
    if opened is None:
        return []
    hold = state.hold
    answer: Cessation | CessationAnswer | None = hold.cessation if hold is not None else None
    if polled is not None and polled.answer is not None and polled.hold == opened.hold:
        answer = polled.answer
    lifted = f"lifted by {state.lifted.lifted_by}" if hold is None and state.lifted is not None else None
    return [
        {
            "lineage": lineage,
            "hold": opened.hold,
            "since": hold.at.isoformat(timespec="seconds") if hold is not None else None,
            "until": opened.until.isoformat(timespec="seconds") if opened.until is not None else None,
            "stands_for": str(opened.stands_for) if opened.stands_for is not None else None,
            "signal_may_lift": opened.signal_may_lift,
            "site_says": lifted or (f"{answer.answer}: {answer.detail}".rstrip(": ") if answer is not None else None),
            "why": opened.why,
        }
    ]


def _cell(value: Any) -> str:
    return "" if value is None else ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _ask(records: list[Record], own: CessationSignal | None) -> tuple[dict[str, Polled], int]:
    """Ask the sites and tell what that has lifted. Returns what each said, by lineage, and 1 where one had trouble."""
    polled = asyncio.run(ask_about_holds(records, signal_for(own), SystemClock(), within=timedelta(seconds=60)))
    for each in polled:
        if each.trouble:
            print(f"prefect-dispatch: {each.lineage}: {printable(each.trouble)}", file=sys.stderr)
        elif each.lifted_by is not None:
            print(f"prefect-dispatch: hold {each.hold} of {each.lineage} is lifted: {each.lifted_by}", file=sys.stderr)
    return {each.lineage: each for each in polled}, int(any(each.trouble for each in polled))
