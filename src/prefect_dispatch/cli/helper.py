"""``prefect-dispatch helper``: write what runs inside a job as one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prefect_dispatch.cli.helper_archive import write_helper
from prefect_dispatch.format.exit_codes import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("dispatch-job.pyz"), help="default: %(default)s"
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        action="append",
        help="a Python of the nodes, so that it starts fast with it; may be given several times; default: this one",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    write_helper(options.output, options.python or [sys.executable])
    print(f"helper written to {options.output}; start it with any Python from 3.9 on")
    return ExitCode.DONE
