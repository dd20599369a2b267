"""The command line as argparse reads it: the commands, their options, and the help."""

from __future__ import annotations

import argparse
from datetime import timedelta

from prefect_dispatch import __version__
from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import parse_duration
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, NoReturn


def parse(given: List[str]) -> argparse.Namespace:
    """Read our own arguments, without the program's.

    Raises:
        UsageError: they are wrong.
    """
    return _parser().parse_args(given)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dispatch-job", description="Runs a job's program, and publishes and finds its saves.")
    parser.add_argument("--version", action="version", version=f"dispatch-job {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    run = add("run", "claim, pin the resume point, guard, relay output, publish saves, exit with the command's code")
    run.add_argument("--submission", metavar="FILE", help="the submission document (default: $DISPATCH_SUBMISSION)")
    run.usage = "dispatch-job run [--submission FILE] -- COMMAND…"

    publish = add("publish", "publish one save of this execution; prints the publication's name")
    publish.add_argument("path", metavar="PATH", help="the save, inside of $DISPATCH_EXEC_DIR")
    publish.add_argument("--step", type=_step, required=True, help="the program's own step")
    publish.add_argument("--state", default="", help="the program's own resume state, at most 64 KiB")

    complete = add("complete", "note that a part of the work is finished, for good")
    complete.add_argument("key", metavar="KEY", help="which part")
    complete.add_argument("--path", help="the file or folder that it wrote, inside of $DISPATCH_EXEC_DIR")
    for name, text in (
        ("remaining", "print those of these parts that are still to be done, one in a line"),
        ("merge", "print what these parts wrote, one path in a line; exits 3 when one of them is not finished"),
    ):
        add(name, text).add_argument("keys", metavar="KEY", nargs="+", help="a part")

    watch = add("watch", "publish this execution's saves as they become whole, until the first error")
    watch.add_argument("--interval", type=_duration, default="5s", metavar="S", help="how often to look (default: 5s)")
    watch.add_argument(
        "--timeout", type=_duration, default="60s", metavar="S", help="how long a look may take (default: 60s)"
    )
    watch.add_argument("--once", action="store_true", help="look once and stop")

    add("env", "print this execution's contract as shell exports")
    for name, text in (
        ("latest", "print the save to resume from; exits 3 when nothing is published"),
        ("list", "print all publications, in order"),
    ):
        show = add(name, text)
        _add_root(show)
    check = add("check", "verify a root against the format; prints each fault, exits 65 if there is one")
    check.add_argument("place", metavar="ROOT", nargs="?", help="the same as --root")
    _add_root(check)
    return parser


def _add_root(command: argparse.ArgumentParser) -> None:
    text = "a lineage's root, <root>/<lineage> (default: $DISPATCH_ROOT)"
    command.add_argument("--root", metavar="ROOT", help=text)
    command.add_argument("--json", action="store_true", help="print JSON")


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, as everything else is."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _step(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 1000:
        raise argparse.ArgumentTypeError(f"{shorten(text)} is not a whole number from 0 to 2^63-1")
    return int(text)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
