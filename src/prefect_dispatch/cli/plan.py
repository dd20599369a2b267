"""``prefect-dispatch plan``: what the rules of a job become, before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path

from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.cli.output import print_json, print_table, say, without_values
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.pictures.tables import identity_table, plan_table
from prefect_dispatch.supervisor.acceptable import check_acceptable
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.identity import identity_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("job", metavar="JOB", type=Path, help="a job spec in YAML")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    job = resolve_job(options.job)
    check_acceptable(job)
    planned = plan_of(job)
    identity = identity_of(job)
    if options.json:
        shown = without_values(job.model_dump(mode="json"))
        print_json({"job": shown, "plan": planned.model_dump(mode="json"), "identity": identity})
        return 0
    print(f"lineage {job.spec.lineage} on {planned.scheduler}, checkpoints in {job.root}, record in {job.record_root}")
    show_plan(planned)
    print_table(identity_table(planned, identity))
    return 0


def show_plan(planned: Plan) -> None:
    """Print a plan for people."""
    print_table(plan_table(planned))
    count = len(planned.substitutions)
    if count:
        say(f"{count} rule{'s are' if count > 1 else ' is'} not as declared; the last column says why")
    for note in planned.notes:
        say(note)
