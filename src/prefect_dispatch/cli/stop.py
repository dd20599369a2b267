"""``prefect-dispatch stop``: end a job, wherever it is."""

from __future__ import annotations

import argparse

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.cli.see_to_end import see_to_end
from prefect_dispatch.supervisor.opening import owner
from prefect_dispatch.supervisor.stop_requests import ask_to_stop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", help="the lineage")
    parser.add_argument("--note", default="", help="why, for the record")
    parser.add_argument("--no-wait", action="store_true", help="leave it to whoever carries the lineage")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command. Killed while it waits, it has lost nothing: whoever carries the lineage ends it all the same."""
    record, _ = existing_record(record_root_of(options), options.lineage)
    state = ask_to_stop(record, who=owner(), note=options.note)
    say(f"recorded: {options.lineage} is to stop")
    return 0 if options.no_wait else see_to_end([(record, state)])
