"""``prefect-dispatch plan``: what the rules of a job become, before anything starts."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.cli.job_file import read_job
from prefect_dispatch.cli.output import print_json, print_table
from prefect_dispatch.model.plan import Plan, plan
from prefect_dispatch.schedulers.registry import scheduler_of
from prefect_dispatch.supervisor.assemble import root_visible
from prefect_dispatch.supervisor.opening import check_acceptable
from prefect_dispatch.supervisor.tables import plan_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("job", metavar="JOB", type=Path, help="a job spec in YAML")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    job = asyncio.run(resolve(read_job(options.job), Path.cwd()))
    check_acceptable(job)
    capabilities = scheduler_of(job.scheduler).capabilities
    planned = plan(job.spec, capabilities, root_visible=root_visible(job.root))
    if options.json:
        print_json({"job": job.model_dump(mode="json"), "plan": planned.model_dump(mode="json")})
        return 0
    print(f"lineage {job.spec.lineage} on {planned.scheduler}, checkpoints in {job.root}, record in {job.record_root}")
    show_plan(planned)
    return 0


def show_plan(planned: Plan) -> None:
    """Print a plan for people."""
    print_table(plan_table(planned))
    for note in planned.notes:
        print(note)
