"""``prefect-dispatch plan``: what the rules of a job become, before anything starts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from prefect_dispatch.cli.job_file import resolve_job, script_notes
from prefect_dispatch.cli.output import print_json, print_table, say, without_values
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Plan
from prefect_dispatch.pictures.tables import identity_table, plan_table
from prefect_dispatch.supervisor.acceptable import check_acceptable
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.identity import identity_of
from prefect_dispatch.supervisor.opening import differences
from prefect_dispatch.supervisor.places import open_record


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
    place = _place(job)
    if options.json:
        shown = without_values(job.model_dump(mode="json"))
        shown_plan = planned.model_dump(mode="json")
        print_json({"job": shown, "plan": shown_plan, "identity": identity, "generation": place.generation})
        return 0
    print(f"lineage {job.spec.lineage} on {planned.scheduler}, checkpoints in {job.root}, record in {job.record_root}")
    if place.told:
        say(place.told)
    for note in script_notes(options.job):
        say(note)
    show_plan(planned)
    print_table(identity_table(planned, identity))
    return 0


@dataclass(frozen=True)
class _Place:
    """What the job would be in its lineage, as the record stands: which generation, and by which command."""

    generation: int
    told: str = ""


def _place(job: ResolvedJob) -> _Place:
    state = open_record(job.record_root, job.spec.lineage, SystemClock()).refresh()
    if state.opened is None:
        return _Place(0)
    present, lineage = state.generation, job.spec.lineage
    fields = differences(state.opened, job)
    if state.finished is None and not fields:
        return _Place(present, f"the lineage is open as generation {present} with this very job; submit joins it")
    if state.finished is not None and job.spec.on_finished == "supersede":
        how = "submit begins"
    else:
        how = f"prefect-dispatch supersede {lineage} JOB begins"
    word = (
        f"finished ({state.finished.outcome})"
        if state.finished is not None
        else f"open, and {', '.join(fields)} differ"
    )
    return _Place(present + 1, f"generation {present} of the lineage is {word}; {how} generation {present + 1} with it")


def show_plan(planned: Plan) -> None:
    """Print a plan for people."""
    print_table(plan_table(planned))
    count = len(planned.substitutions)
    if count:
        say(f"{count} rule{'s are' if count > 1 else ' is'} not as declared; the last column says why")
    for note in planned.notes:
        say(note)
