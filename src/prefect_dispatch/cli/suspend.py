"""``prefect-dispatch suspend``: ask jobs to save and exit."""

from __future__ import annotations

import argparse
import sys

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.cli.see_to_end import see_to_end
from prefect_dispatch.errors import DispatchError, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.opening import owner
from prefect_dispatch.supervisor.places import known_lineages
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.stop_requests import ask_to_suspend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", nargs="?", help="the lineage")
    parser.add_argument("--all", action="store_true", help="all lineages of the store that run")
    parser.add_argument("--node", metavar="NODE", help="all that run on this node, by its name as status shows it")
    parser.add_argument("--note", default="", help="why, for the record")
    parser.add_argument("--no-wait", action="store_true", help="leave it to whoever carries the lineage")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command. Killed while it waits, it has lost nothing: whoever carries a lineage goes on with it."""
    if sum((options.lineage is not None, options.all, options.node is not None)) != 1:
        raise UsageError("name one LINEAGE, or give --all for every lineage of the store that runs, or --node NODE")
    root = record_root_of(options)
    code = 0
    asked: list[tuple[Record, LineageState]] = []
    for lineage in [options.lineage] if options.lineage is not None else known_lineages(root):
        try:
            record, state = existing_record(root, lineage)
            if options.lineage is None and not (_runs(state) and _is_on(state, options.node)):
                continue
            asked.append((record, ask_to_suspend(record, who=owner(), note=options.note)))
            say(f"recorded: {lineage} is asked to save and exit")
        except DispatchError as error:
            print(f"prefect-dispatch: {printable(str(error))}", file=sys.stderr)
            code = max(code, int(error.exit_code))
    if options.node is not None and not asked and code == 0:
        say(f"nothing of {root} runs on {options.node}")
    return code if options.no_wait else max(code, see_to_end(asked))


def _runs(state: LineageState) -> bool:
    """Whether there is something to suspend: what is over, held or being stopped is left alone."""
    return state.open and state.hold is None and (state.stop is None or state.stop.intent == "suspend")


def _is_on(state: LineageState, node: str | None) -> bool:
    """Whether something of a lineage runs on a node, as its scheduler last said; on any where none is asked for.

    What is queued is on no node yet, and comes to one that is drained only if its scheduler lets it.
    """
    if node is None:
        return True
    live = (each.newest for each in state.submissions if each.live)
    return any(execution is not None and node in execution.nodes for execution in live)
