"""``prefect-dispatch logs``: the output of a lineage's newest execution."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import sys
import time

from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.errors import Absent, LineageError, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.registry import scheduler_of
from prefect_dispatch.supervisor.log_file import open_log
from prefect_dispatch.supervisor.patience import PatientReader

POLL_SECONDS = 0.5
CHUNK = 256 * 1024
_PLAIN = "\n\t\r"
"""What is not printable and yet shown as it is: a carriage return begins the line of a progress bar anew, no more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE")
    parser.add_argument("--raw", action="store_true", help="on a terminal too, pass every byte as the job wrote it")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the lineage is over or held")
    parser.add_argument("--submission", type=int, metavar="N", help="of this submission (default: the newest)")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.follow and options.submission is not None:
        raise UsageError("--follow goes from submission to submission; leave out --submission, or --follow")
    record, state = existing_record(record_root_of(options), options.lineage)
    reader = PatientReader(record, lambda text: print(f"prefect-dispatch: {printable(text)}", file=sys.stderr))
    n = options.submission
    while options.follow and state.open and state.hold is None and not any(each.object for each in state.submissions):
        time.sleep(POLL_SECONDS)
        state = reader.read()
    path = _path_of(state, options.lineage, n)
    printer = LogPrinter(options.raw)
    position = printer.print_from(path, 0)
    while options.follow and state.open and state.hold is None:
        time.sleep(POLL_SECONDS)
        position = printer.print_from(path, position)
        state = reader.read()
        with contextlib.suppress(LineageError):
            newest = _path_of(state, options.lineage, None)
            if newest != path:
                printer.print_from(path, position)
                path, position = newest, 0
    printer.print_from(path, position)
    return 0


def _path_of(state: LineageState, lineage: str, n: int | None) -> str:
    known = [each for each in state.submissions if each.object is not None and n in (None, each.n)]
    if not known or known[-1].object is None or state.opened is None:
        raise LineageError(
            f"lineage {lineage!r} has no output yet" if n is None else f"{lineage!r} has no submission {n}"
        )
    path = scheduler_of(state.opened.scheduler).log(known[-1].object)
    if path is None:
        raise LineageError(f"the log of {known[-1].object} cannot be seen from this machine")
    return path


class LogPrinter:
    """Prints logs: into files and pipes byte by byte; on a terminal as text that cannot command it."""

    def __init__(self, raw: bool) -> None:
        self._raw = raw or not sys.stdout.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def print_from(self, path: str, position: int) -> int:
        """Print a log from a position on. Returns where it ends now."""
        with contextlib.suppress(Absent), open_log(path) as log:
            log.seek(position)
            while chunk := log.read(CHUNK):
                self._print(chunk)
                position += len(chunk)
        sys.stdout.flush()
        return position

    def _print(self, chunk: bytes) -> None:
        if self._raw:
            sys.stdout.buffer.write(chunk)
        else:
            text = self._decoder.decode(chunk)
            sys.stdout.write("".join(c if c in _PLAIN or c.isprintable() else printable(c) for c in text))
