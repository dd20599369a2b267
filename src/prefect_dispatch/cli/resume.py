"""``prefect-dispatch resume``: a person's answer to a hold. Nothing is decided by default."""

from __future__ import annotations

import argparse

from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.cli.wake_carrier import wake_carrier
from prefect_dispatch.supervisor import choices
from prefect_dispatch.supervisor.opening import owner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", help="the held lineage")
    parser.add_argument("--hold", metavar="ID", help="the hold that is answered, as prefect-dispatch holds shows it")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--run-again", action="store_true", help="by the rule that the hold stands for")
    choice.add_argument("--stop", action="store_true", help="end the job")
    choice.add_argument("--from", dest="base", metavar="SAVE", help="from this save, as dispatch-job list prints it")
    choice.add_argument("--scratch", action="store_true", help="without any save")
    parser.add_argument("--note", default="", help="why, for the record")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    record, _ = existing_record(record_root_of(options), options.lineage)
    told = {"hold": options.hold, "who": owner(), "note": options.note}
    if options.run_again:
        choices.run_again(record, **told)
    elif options.stop:
        choices.stop(record, **told)
    elif options.base is not None:
        choices.continue_from(record, options.base, **told)
    else:
        choices.from_scratch(record, **told)
    say(f"recorded; who carries {options.lineage} acts on it. If nobody does any more, submit its job again")
    wake_carrier(record)
    return 0
