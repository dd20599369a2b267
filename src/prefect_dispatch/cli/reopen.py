"""``prefect-dispatch reopen``: take a job up again that is over; it holds first."""

from __future__ import annotations

import argparse
import shlex

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.supervisor.choices import reopen
from prefect_dispatch.supervisor.opening import owner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", help="the finished lineage")
    parser.add_argument("--note", default="", help="why, for the record")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    root = record_root_of(options)
    record, _ = existing_record(root, options.lineage)
    reopen(record, who=owner(), note=options.note)
    how = f"prefect-dispatch resume {options.lineage} --store {shlex.quote(root)} …"
    say(f"{options.lineage} is open again and held; say how it goes on: {how}")
    return 0
