"""``prefect-dispatch submit``: open a lineage with a job, or go on with it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from prefect_dispatch.cli.job_file import read_job, resolve_spec
from prefect_dispatch.cli.temporary_server import prefect_api
from prefect_dispatch.errors import LineageError, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.facts import CarriedBy, Outcome
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.spec import InlineStore, JobSpec
from prefect_dispatch.model.state import Hold
from prefect_dispatch.settings import state_folder
from prefect_dispatch.supervisor.advance import Advanced
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.beating import beating
from prefect_dispatch.supervisor.beats import Heart
from prefect_dispatch.supervisor.carriers import process_carrier
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, TakenOver, drive
from prefect_dispatch.supervisor.log_file import tail_of
from prefect_dispatch.supervisor.opening import open_lineage, owner, require_held
from prefect_dispatch.supervisor.patience import PatientReader
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.trouble import Trouble

_PROGRAM = (sys.executable, "-P", "-m", "prefect_dispatch.cli")
POLL_SECONDS = 0.2
_HOLD = re.compile(r"h[0-9]+")
HELD = 75
"""Exit code of a job that is held: try again later, in the words of BSD's sysexits.h."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("job", metavar="JOB", nargs="?", help="a job spec in YAML")
    parser.add_argument("--wait", action="store_true", help="stay until the job is over or held; exit 0, 1 or 75")
    parser.add_argument(
        "--run-again",
        metavar="HOLD",
        nargs="?",
        const="",
        help="lift this hold; without its name the one that the lineage is in when the command starts",
    )
    parser.add_argument("--note", default="", help="with --run-again: why, for the record")
    parser.add_argument("--copy-for", metavar="RECORD", default="", help=argparse.SUPPRESS)
    parser.add_argument("--generation", type=int, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.job is None and options.run_again and not _HOLD.fullmatch(options.run_again):
        # ``--run-again JOB``: the word behind the option is no hold's name.
        options.job, options.run_again = options.run_again, ""
    if options.job is None:
        raise UsageError("no JOB is given; name the job's spec, such as job.yaml")
    options.job = Path(options.job)
    if options.run_again and not _HOLD.fullmatch(options.run_again):
        raise UsageError(f"--run-again {options.run_again!r} is no hold's name, such as h12; see the record")
    if options.note and options.run_again is None:
        raise UsageError(f"--note {options.note!r} is for a hold that is lifted; add --run-again, or leave it out")
    # A job that is wrong is refused before a server is started for it; and what is checked is what is run.
    spec = read_job(options.job)
    if options.copy_for:
        # Its environment may hold secrets, and what follows may fail or be killed.
        options.job.unlink()
    with contextlib.ExitStack() as needed:
        if options.wait and not _is_settled(options, spec):
            needed.enter_context(prefect_api())
        return _run(options, spec)


def _is_settled(options: argparse.Namespace, spec: JobSpec) -> bool:
    """Whether there is nothing to carry, as the record says: the lineage is over, or waits for a person.

    Where Prefect must say which record that is, it is found out with a server.
    """
    if options.copy_for or not isinstance(spec.store, InlineStore) or isinstance(spec.scheduler, str):
        return False
    job = resolve_spec(spec)
    record = open_record(job.record_root, job.spec.lineage, SystemClock())
    state = record.refresh()
    if state.finished is not None:
        return spec.on_finished == "refuse"
    return state.hold is not None and options.run_again is None


def _run(options: argparse.Namespace, spec: JobSpec) -> int:
    job = resolve_spec(spec)
    record = open_record(job.record_root, job.spec.lineage, SystemClock())
    if options.copy_for:
        _require_record(record, options.copy_for)
    seen = require_held(record, options.run_again) if options.run_again is not None else None
    # Who goes on for a command that has opened the lineage opens nothing: it may have been stopped meanwhile.
    state = open_lineage(record, job, plan_of(job), meant=options.generation)
    if seen is not None:
        hold = seen.opened
        print(f"lifting hold {hold.hold} of {job.spec.lineage}: {printable(hold.why)}", flush=True)
        run_again(record, hold.hold, who=owner(), note=options.note)
    elif state.hold is not None:
        return _tell_held(job, state.hold)
    if options.wait:
        return supervise_here(job, record, state.generation if options.generation is None else options.generation)
    return supervise_apart(job, record, state.generation)


def _require_record(record: Record, meant: str) -> None:
    """Refuse to carry another lineage than the one that this process was started for."""
    found = record.id() if record.exists() else "not there"
    if found != meant:
        raise LineageError(
            f"the record of lineage {record.lineage!r} in {record.location} is {found} and not {meant}, for which this "
            "process was started; submit the job again"
        )


def supervise_here(job: ResolvedJob, record: Record, generation: int) -> int:
    """Carry a job in this process until it is over or held. The exit code is the record's word, not Prefect's."""
    trouble = _carry(job, record, generation)
    state = PatientReader(record, _tell).wait()
    if state.generation > generation:
        text = f"generation {generation} of lineage {job.spec.lineage} was superseded by generation {state.generation}"
        print(f"{text}, which others carry", file=sys.stderr)
        return 1
    if state.hold is not None:
        return _tell_held(job, state.hold)
    finished = state.finished
    if finished is None:
        print(
            f"lineage {job.spec.lineage} is not over: {printable(trouble)}; to go on, submit the job again",
            file=sys.stderr,
        )
        return 1
    print(f"lineage {job.spec.lineage} {finished.outcome}: {printable(finished.detail)}")
    return 0 if finished.outcome is Outcome.SUCCEEDED else 1


def _carry(job: ResolvedJob, record: Record, generation: int) -> str:
    """Run supervise, and without Prefect where Prefect fails. Returns in one line how it ended."""
    from prefect_dispatch.flows.supervise import carry

    try:
        return str(asyncio.run(carry(job.spec, generation)).message)
    except Exception as error:
        fault = printable(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        print(f"prefect-dispatch: Prefect failed ({fault}); the job goes on without it", file=sys.stderr)
    return asyncio.run(_carry_alone(record, job.record_root, generation))


async def _carry_alone(record: Record, record_root: str, generation: int) -> str:
    """Advance a lineage until it is over, held or carried by somebody else: all that a job needs of a supervisor."""
    clock = SystemClock()
    state = PatientReader(record, _tell).wait()
    if state.generation > generation:
        return ""
    supervisor = supervisor_of(record, state, clock)
    carrier = process_carrier()
    if (await supervisor.read(_tell)).open:
        await supervisor.append(CarriedBy(flow_run=carrier), _tell)
    trouble = Trouble()

    async def tell_trouble(advanced: Advanced) -> None:
        trouble.note(advanced.trouble, _tell)

    async with beating(Heart(record_root, record.lineage, carrier, clock), clock, _tell):
        while isinstance(
            happening := await drive(supervisor, carrier=carrier, after_each=tell_trouble, tell=_tell), ExecutionOver
        ):
            pass
    return f"{happening.by} carries it now" if isinstance(happening, TakenOver) else ""


def _tell(trouble: str) -> None:
    print(f"prefect-dispatch: {printable(trouble)}", file=sys.stderr)


def _tell_held(job: ResolvedJob, hold: Hold) -> int:
    name, id = job.spec.lineage, hold.opened.hold
    print(f"lineage {name} is held: {printable(hold.opened.why)}; to go on, add --run-again {id}", file=sys.stderr)
    print(
        f"or answer hold {id} otherwise, and submit the job again: prefect-dispatch resume {name} "
        f"--store {job.record_root} --stop | --scratch | --from SAVE",
        file=sys.stderr,
    )
    return HELD


def supervise_apart(job: ResolvedJob, record: Record, generation: int) -> int:
    """Start a process of its own that carries the generation and outlives this terminal; return once it does so."""
    spec: JobSpec = job.spec
    folder = state_folder() / "supervisors"
    folder.mkdir(parents=True, exist_ok=True)
    reader = PatientReader(record, _tell)
    # Two stores may each have a lineage of this name: only the record's id tells them apart.
    log = folder / f"{spec.lineage}-{record.id()}.log"
    # JSON is YAML. A copy, since the file may be changed before the process reads it; its own, which it removes.
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".yaml", delete=False, encoding="utf-8") as copy:
        copy.write(spec.model_dump_json())
    before = reader.wait().carried_by
    print(f"lineage {spec.lineage} is open; starting a process that carries it", flush=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*_PROGRAM, "submit", copy.name, "--wait", "--copy-for", record.id(), f"--generation={generation}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while (carried := reader.read().carried_by) == before and process.poll() is None:
        time.sleep(POLL_SECONDS)
    if carried == before and process.returncode != 0:
        last = tail_of(str(log)).rpartition("\n")[2]
        print(f"prefect-dispatch: nobody carries {spec.lineage}: {printable(last)}; see {log}", file=sys.stderr)
        return process.returncode or 1
    print(f"lineage {spec.lineage} is carried by process {process.pid}, which writes to {log}")
    print(f"to watch it: prefect-dispatch status {spec.lineage} --store {job.record_root}")
    return 0
