"""How long processes outlive Slurm's word that their job has ended, and how soon the replacement works.

    python benchmarks/slurm_overlap.py                      the tests' cluster, with short times; about ten minutes
    python benchmarks/slurm_overlap.py --defaults           KillWait, SlurmdTimeout and credentials as Slurm has them
    python benchmarks/slurm_overlap.py --case cut-off       one case only; may be given more than once
    python benchmarks/slurm_overlap.py --json               the same for a script

It starts a real cluster on this machine (root, Debian; see tests/slurm_cluster), and for each case a job in it that
ignores SIGTERM and saves four times a second (once with --defaults), the wrapper giving it all the time it wants. Then
something happens to the job. Slurm's word is that of its accounting: the first moment, looked for every 0.2 s (1 s with
--defaults), at which `sacct` has an end of the run. A replacement is submitted by a supervisor that asks once a second
and waits 5 s for a requeue of Slurm's; or Slurm itself runs the job again. Old and new go on side by side where they
can, for 8 s, and then the node is mended.

In each case the replacement must have resumed from the newest save that was published when it began, and whatever the
old run published after that must not count: both are looked at, and told as faults.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ending import ending_what_it_started, number_of, passing_folder
from slurm_trials.cases import CASES
from slurm_trials.trial import Measured, run_trial

from slurm_cluster.cluster import KIT, Cluster, why_not

SHORT = {"KILLWAIT": "5", "SLURMDTIMEOUT": "10", "CREDEXPIRE": "5"}
SLURMS_OWN = {"KILLWAIT": "30", "SLURMDTIMEOUT": "300", "CREDEXPIRE": "120"}
PATIENCE = {True: 1800.0, False: 300.0}
SAMPLE = {True: 1.0, False: 0.2}
"""Seconds between two looks at the accounting: what is measured is as exact as that."""
PAUSE = {True: 1.0, False: 0.25}
"""Seconds between two saves: a node that is cut off for half an hour is to leave no 10,000 of them."""


def main(arguments: Sequence[str]) -> int:
    """Run the cases that the command line asks for and print what was seen."""
    options = parse(arguments)
    refusal = why_not()
    if refusal:
        print(f"slurm_overlap.py: {refusal}", file=sys.stderr)
        return 2
    settings = SLURMS_OWN if options.defaults else SHORT
    seen: dict[str, Measured] = {}
    with passing_folder("slurm-overlap-", None) as place, cluster(place, settings, 2 * options.at_once) as running:

        def run(name: str) -> Measured:
            folder = place / name
            folder.mkdir()
            own = options.defaults
            measured = run_trial(CASES[name], running, folder, PATIENCE[own], SAMPLE[own], PAUSE[own])
            print(f"{name}: {measured}", file=sys.stderr, flush=True)
            return measured

        seen = side_by_side(run, options.case, options.at_once)
    if options.json:
        told = {name: dataclasses.asdict(measured) for name, measured in seen.items()}
        print(json.dumps({"settings": settings, "cases": told}, indent=2))
    else:
        print(table(seen))
    return 1 if any(measured.faults for measured in seen.values()) else 0


def side_by_side(run: Callable[[str], Measured], names: Sequence[str], at_once: int) -> dict[str, Measured]:
    """Run the cases in threads that end with this process: whoever interrupts it waits for none of them."""
    waiting, seen, faults = list(reversed(names)), {}, []

    def work() -> None:
        while waiting and not faults:
            name = waiting.pop()
            try:
                seen[name] = run(name)
            except BaseException as fault:
                faults.append(fault)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not faults:
        time.sleep(0.2)
    if faults:
        raise faults[0]
    return {name: seen[name] for name in names}


@contextmanager
def cluster(place: Path, settings: Mapping[str, str], nodes: int) -> Iterator[Cluster]:
    """A cluster of this benchmark's own."""
    folder = place / "cluster"
    own = {"PREFIX": f"so{os.getpid()}", "CPUS": "2", "MINJOBAGE": "300", **settings}
    subprocess.run(
        [KIT / "up.sh", folder, str(nodes)],
        env={**os.environ, **own},
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    running = Cluster(place)
    before = os.environ["PATH"]
    os.environ["PATH"] = running.path
    try:
        yield running
    finally:
        os.environ["PATH"] = before
        subprocess.run([KIT / "down.sh", folder, "--purge"], stdout=sys.stderr)


def table(seen: Mapping[str, Measured]) -> str:
    """The table as the documentation has it."""
    lines = [
        "| what happens | Slurm says so after | old processes wrote for | next `sbatch` after | replacement's first "
        "step after | both wrote for | late saves |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, measured in seen.items():
        lived = "gone before" if measured.lived <= 0 else f"{measured.lived:.1f} s"
        lived += ", until the node was mended" if measured.until_mended else ""
        submitted = "Slurm's own requeue" if measured.submitted is None else f"{measured.submitted:.1f} s"
        lines.append(
            f"| {CASES[name].what} | {measured.said:.1f} s | {lived} | {submitted} | {measured.first_step:.1f} s "
            f"| {measured.together:.1f} s | {measured.late}{'; '.join(['', *measured.faults])} |"
        )
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="How long processes outlive Slurm's word that their job has ended.")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this case")
    parser.add_argument("--defaults", action="store_true", help="with Slurm's own times instead of short ones")
    parser.add_argument(
        "--at-once", type=number_of("cases"), default=1, help="cases side by side, on two nodes each (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    options.case = options.case or list(CASES)
    return options


if __name__ == "__main__":
    with ending_what_it_started():
        sys.exit(main(sys.argv[1:]))
