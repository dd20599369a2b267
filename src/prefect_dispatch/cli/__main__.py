"""The command line ``prefect-dispatch``. Each command is a module of its own, imported only when it is used."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence

from prefect_dispatch import __version__
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.printable import printable

COMMANDS = {
    "demo": "run the main job: a training that is preempted twice and ends as the same run",
    "up": "serve jobs from Prefect's UI: a server if there is none, the deployments, and a worker; Ctrl-C ends it",
    "down": "end the up that runs; jobs that were submitted go on, and the next up takes them up",
    "plan": "show what the rules of a job become, before anything starts",
    "submit": "open a lineage with a job, or go on with it",
    "status": "show lineages, or one",
    "holds": "show what waits for an answer, and ask the sites",
    "resume": "answer a hold: run again, stop, continue from another save or from scratch",
    "suspend": "ask a job to save and exit; it is held until it is resumed",
    "stop": "end a job, wherever it is",
    "supersede": "have a changed job take the place of the one that a lineage was opened with",
    "reopen": "take a job up again that is over; it holds first",
    "logs": "print the output of a lineage's newest execution",
    "record": "print the facts of a lineage",
    "timeline": "draw the timeline of a lineage",
    "helper": "write what runs inside a job as one file, for nodes where nothing is installed",
}


def _quiet_prefect() -> None:
    """Keep a temporary Prefect server, if one is started, from calling home and from logging into our output."""
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")


def _replace_closed_streams() -> None:
    """What is closed becomes the null device: what is opened next would get its number, and what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        words: the command line without the program's name; that of the process where left out.

    Returns:
        The exit code: 0 done, 1 the job failed or was stopped, 2 usage, 65 malformed data, 69 store unreachable, 74
        I/O, 75 the job is held.
    """
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its escape, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if words is None else list(words)
    name = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="prefect-dispatch", description="Long, preemptible jobs, run to their end.")
    parser.add_argument("--version", action="version", version=f"prefect-dispatch {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command, text in COMMANDS.items():
        sub = commands.add_parser(command, help=text, description=text[0].upper() + text[1:] + ".")
        if command == name:
            _quiet_prefect()
            module = importlib.import_module(f"prefect_dispatch.cli.{command}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except DispatchError as error:
        print(f"prefect-dispatch: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough; what is still buffered must not raise again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"prefect-dispatch: {printable(str(error))}", file=sys.stderr)
        return ExitCode.IO_ERROR
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
