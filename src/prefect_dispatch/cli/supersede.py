"""``prefect-dispatch supersede``: have a changed job take the place of the one that a lineage was opened with."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from prefect_dispatch.cli.job_file import read_job, resolve_spec
from prefect_dispatch.cli.output import say
from prefect_dispatch.cli.submit import supervise_apart, supervise_here
from prefect_dispatch.cli.temporary_server import prefect_api
from prefect_dispatch.cli.wake_carrier import retire_carriers
from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.identity import short_digest
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.pictures.generations import resume_words
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import owner
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.superseding import supersede


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", help="the lineage, open or finished")
    parser.add_argument("job", metavar="JOB", type=Path, help="the changed job's spec in YAML, of the same lineage")
    parser.add_argument(
        "--resume",
        metavar="FROM",
        help="latest, scratch, or a save as dispatch-job list prints it; as the old job would go on where left out",
    )
    parser.add_argument("--note", default="", help="why, for the record")
    parser.add_argument("--wait", action="store_true", help="stay until the job is over or held; exit 0, 1 or 75")


def run(options: argparse.Namespace) -> int:
    """Run the command. Killed before its one fact is written it has changed nothing, and afterwards all."""
    spec = read_job(options.job)
    if spec.lineage != options.lineage:
        raise UsageError(f"{str(options.job)!r} is a job of lineage {spec.lineage!r}, not of {options.lineage!r}")
    with contextlib.ExitStack() as needed:
        if options.wait:
            needed.enter_context(prefect_api())
        job = resolve_spec(spec)
        record = open_record(job.record_root, options.lineage, SystemClock())
        before = record.refresh()
        if before.opened is None and record.unreadable is None:
            raise record.why_not_opened()
        planned = plan_of(job)
        told = {"who": owner(), "note": options.note, "resume": options.resume}
        state = supersede(record, job, planned, meant=before.generation, **told)
        _tell(options.lineage, before, state)
        retire_carriers(record)
        if options.wait:
            return supervise_here(job, record, state.generation)
        return supervise_apart(job, record, state.generation)


def _tell(lineage: str, before: LineageState, state: LineageState) -> None:
    """Say what was decided: what runs, what it goes on from, and what of the identity is another."""
    old, new = before.opened, state.opened
    if old is None or new is None:
        return
    say(f"generation {state.generation} of {lineage} takes the place of generation {before.generation}")
    where = resume_words(new.base, new.floor, state.generation)
    say(f"it goes on from {where}; once it has saves of its own, from those alone")
    for name in sorted({*old.identity, *new.identity}):
        was, now = old.identity.get(name), new.identity.get(name)
        if was != now:
            words = [short_digest(each) if each else "nothing known" for each in (was, now)]
            say(f"identity.{name} was {words[0]}, and is {words[1]}")
