"""``prefect-dispatch timeline``: the timeline of a lineage, as a picture or as text."""

from __future__ import annotations

import argparse
from pathlib import Path

from prefect_dispatch.cli.output import report_faults
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.pictures.history import History, history_of
from prefect_dispatch.pictures.timeline import draw_text_timeline, draw_timeline
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE")
    parser.add_argument("-o", "--output", metavar="FILE.svg", type=Path, help="write the picture; else print text")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    record, state = existing_record(record_root_of(options), options.lineage)
    history = history_of(record.entries(), root_view_of(options.lineage, state))
    if options.output is None:
        print(text_timeline(options.lineage, history))
    else:
        options.output.write_text(svg_timeline(options.lineage, history), encoding="utf-8")
        print(f"timeline written to {options.output}")
    return report_faults(history, record)


def svg_timeline(lineage: str, history: History) -> str:
    """The picture."""
    return draw_timeline(lineage, history.bars(), history.ticks, history.marks, SystemClock().now())


def text_timeline(lineage: str, history: History) -> str:
    """The same for a terminal."""
    return draw_text_timeline(lineage, history.bars(), history.ticks, history.marks, SystemClock().now())
