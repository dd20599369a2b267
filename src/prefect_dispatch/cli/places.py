"""Which records a command looks at."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from prefect_dispatch.cli.temporary_server import prefect_api
from prefect_dispatch.errors import UsageError
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import absolute_root, open_record
from prefect_dispatch.supervisor.record import Record


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add ``--store``."""
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="record root (default: $DISPATCH_STORE, else the block checkpoint-store/default)",
    )


def record_root_of(options: argparse.Namespace) -> str:
    """The record root that a command was given, absolute.

    Raises:
        UsageError: none was given, and there is no default.
    """
    given = options.store or os.environ.get("DISPATCH_STORE")
    if given:
        return absolute_root(given, Path.cwd())
    # Prefect takes seconds to import: only who has no other place to look pays for it.
    from prefect_dispatch.blocks import CheckpointStore

    try:
        with prefect_api():
            store = CheckpointStore.load("default")
    except ValueError:
        raise UsageError(
            "no store: give --store PATH, set DISPATCH_STORE, or create the Prefect block checkpoint-store/default"
        ) from None
    if not isinstance(store, CheckpointStore):
        raise UsageError("the block checkpoint-store/default could not be loaded; give --store PATH")
    return store.records


def existing_record(record_root: str, lineage: str) -> tuple[Record, LineageState]:
    """A lineage's record and its state.

    Raises:
        UsageError: the name is no lineage's.
        LineageError: there is no such lineage.
        StoreUnreachable: there is one, and its record is away.
    """
    record = open_record(record_root, lineage, SystemClock())
    state = record.refresh()
    if state.opened is None and record.unreadable is None:
        raise record.why_not_opened()
    return record, state
