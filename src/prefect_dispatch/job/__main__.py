"""The ``dispatch-job`` command line."""

from __future__ import annotations

import argparse
import io
import os
import sys
from datetime import timedelta
from typing import List, NoReturn, Optional, Sequence, Tuple

from prefect_dispatch import __version__
from prefect_dispatch.errors import DispatchError, UsageError
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.printable import printable, shorten

_MOST = 1500
"""Characters of an error that are shown; a value that it names may be of any length."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code. Every error is one line on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _write_anything()
    try:
        return int(_dispatch(given))
    except DispatchError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.IO_ERROR
    except OSError as error:
        return _fail(str(error), ExitCode.IO_ERROR)
    except UnicodeEncodeError as error:
        what = (
            f"{error.object[:200]!r} cannot be written in {error.encoding!r}, which this environment's locale asks for"
        )
        return _fail(f"{what}; set LC_ALL=C.UTF-8", ExitCode.USAGE)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:
        text = f"internal error: {type(error).__name__}: {error}; set DISPATCH_DEBUG=1 for details"
        return _fail(text, ExitCode.INTERNAL)


def _write_anything() -> None:
    """Have what the terminal's encoding lacks written as escapes: no name of a save may end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(given: List[str]) -> int:
    own, command = _split(given)
    options = _parser().parse_args(own)
    if options.name == "run":
        from prefect_dispatch.job.run import run

        if not command:
            raise UsageError("no command to run; write: dispatch-job run --submission FILE -- COMMAND")
        return run(options.submission, command, os.environ)
    from prefect_dispatch.job import commands

    if options.name == "publish":
        print(commands.publish(options.path, options.step, options.state).name)
        return ExitCode.DONE
    if options.name == "watch":
        return commands.watch(options.interval, options.timeout, options.once)
    if options.name == "env":
        return commands.show_environment()
    shows = {"latest": commands.show_latest, "list": commands.show_list, "check": commands.show_check}
    return shows[options.name](getattr(options, "place", None) or options.root, options.json)


def _split(given: List[str]) -> Tuple[List[str], List[str]]:
    """Our own arguments, and the program's behind the first ``--`` of ``run``, which argparse must not touch."""
    if given[:1] != ["run"] or "--" not in given:
        return given, []
    position = given.index("--")
    return given[:position], given[position + 1 :]


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
    from prefect_dispatch.format.durations import parse_duration

    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fail(text: str, code: int) -> int:
    if os.environ.get("DISPATCH_DEBUG"):
        import traceback

        traceback.print_exc()
    try:
        print(f"dispatch-job: {printable(text, _MOST)}", file=sys.stderr)
    except OSError:
        pass
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
