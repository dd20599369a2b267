"""The ``dispatch-job`` command line."""

from __future__ import annotations

import gc
import io
import os
import sys

from prefect_dispatch.errors import DispatchError, UsageError
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List, NoReturn, Optional, Sequence, Tuple

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


def start() -> NoReturn:
    """Be the command: run it and leave with its exit code, at once.

    Taking the interpreter down piece by piece would be a fifth of what a start and end cost. Nothing is left to it:
    what is durable is so already, and no thread has anything to say any more.
    """
    code = main()
    try:
        if sys.stdout is not None:  # A job may be started without it.
            sys.stdout.flush()
    except BrokenPipeError:
        code = code or ExitCode.IO_ERROR
    except OSError as error:
        text = f"standard output cannot be written: {error.strerror}; free space there or redirect it"
        code = _fail(text, ExitCode.IO_ERROR)
    except ValueError:
        pass  # The program's end has closed it.
    os._exit(code)


def _write_anything() -> None:
    """Have what the terminal's encoding lacks written as escapes: no name of a save may end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(given: List[str]) -> int:
    own, command = _split(given)
    # As every job is started; what argparse brings along would be a fifth of that start.
    if command and own == ["run"]:
        return _run(None, command)
    if command and own[:2] == ["run", "--submission"] and len(own) == 3:
        return _run(own[2], command)
    from prefect_dispatch.job.command_line import parse

    options = parse(own)
    if options.name == "run":
        return _run(options.submission, command)
    from prefect_dispatch.job import commands

    if options.name == "publish":
        print(commands.publish(options.path, options.step, options.state).name)
        return ExitCode.DONE
    if options.name in ("complete", "remaining", "merge"):
        return _parts(options)
    if options.name == "watch":
        return commands.watch(options.interval, options.timeout, options.once)
    if options.name == "env":
        return commands.show_environment()
    shows = {"latest": commands.show_latest, "list": commands.show_list, "check": commands.show_check}
    return shows[options.name](getattr(options, "place", None) or options.root, options.json)


def _parts(options: Namespace) -> int:
    from prefect_dispatch.job import parts
    from prefect_dispatch.job.commands import print_path

    if options.name == "complete":
        parts.complete(options.key, options.path)
    elif options.name == "remaining":
        for key in parts.remaining(options.keys):
            print_path(key)
    else:
        for part in parts.merge(options.keys):
            if part.path is not None:
                print_path(part.path)
    return ExitCode.DONE


def _run(document: Optional[str], command: List[str]) -> int:
    # Nearly all that a start makes is there to stay: to look through it for garbage again and again finds none.
    gc.disable()
    try:
        from prefect_dispatch.job.run import run

        if not command:
            raise UsageError("no command to run; write: dispatch-job run --submission FILE -- COMMAND")
        return run(document, command, os.environ)
    finally:
        gc.enable()


def _split(given: List[str]) -> Tuple[List[str], List[str]]:
    """Our own arguments, and the program's behind the first ``--`` of ``run``, which argparse must not touch."""
    if given[:1] != ["run"] or "--" not in given:
        return given, []
    position = given.index("--")
    return given[:position], given[position + 1 :]


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
    start()
