"""Run the simulator over many seeds, or one seed again step by step: ``benchmarks/simulate.py --seeds 10000``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from ending import ending_what_it_started, number_of

from prefect_dispatch.testing.simulator import simulate

SHOWN = 20


def run_seeds(first: int, count: int) -> dict[str, Any]:
    """Run some seeds one after the other; what they came to, in words that fit into JSON."""
    began = time.perf_counter()
    happened: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    failing: dict[str, str] = {}
    for seed in range(first, first + count):
        outcome = simulate(seed)
        happened.update(outcome.happened)
        ends[outcome.ended_as.partition(":")[0]] += 1
        if outcome.violations:
            failing[str(seed)] = str(outcome.violations[0])
    return _result(first, count, time.perf_counter() - began, failing, happened, ends)


def run_side_by_side(first: int, count: int, workers: int) -> dict[str, Any]:
    """Run seeds in several processes at a time, and put together what they came to."""
    began = time.perf_counter()
    share = -(-count // workers)
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--from", str(first + done), "--seeds", str(min(share, count - done)), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # A terminal's interruption is for the one that ends them all.
        )
        for done in range(0, count, share)
    ]
    parts = [json.loads(process.communicate()[0]) for process in running]
    happened: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    failing: dict[str, str] = {}
    for part in parts:
        happened.update(part["happened"])
        ends.update(part["ends"])
        failing.update(part["failing"])
    return _result(first, count, time.perf_counter() - began, failing, happened, ends)


def _result(
    first: int, count: int, seconds: float, failing: dict[str, str], happened: Counter[str], ends: Counter[str]
) -> dict[str, Any]:
    return {
        "first": first,
        "seeds": count,
        "seconds": seconds,
        "failing": failing,
        "happened": dict(sorted(happened.items())),
        "ends": dict(sorted(ends.items())),
    }


def show(result: dict[str, Any]) -> None:
    """Print a result for people."""
    rate = result["seeds"] / result["seconds"]
    print(f"{result['seeds']} seeds from {result['first']} in {result['seconds']:.1f} s, {rate:.1f} a second")
    print("ended: " + ", ".join(f"{count} {end}" for end, count in result["ends"].items()))
    for kind, count in sorted(result["happened"].items(), key=lambda item: -item[1]):
        print(f"{count:>10} {kind}")
    print(f"{len(result['failing'])} seeds failed")
    for seed, text in list(result["failing"].items())[:SHOWN]:
        print(f"seed {seed}: {text}\n    again: python benchmarks/simulate.py --replay {seed}")


def main() -> int:
    """Run what the command line asks for; 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=number_of("seeds"), default=1000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--workers", type=number_of("processes"), default=1, help="in how many processes")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed, and print every step")
    options = parser.parse_args()
    if options.replay is not None:
        outcome = simulate(options.replay)
        print(outcome.trace, end="")
        return 1 if outcome.violations else 0
    if options.workers > 1:
        result = run_side_by_side(options.first, options.seeds, options.workers)
    else:
        result = run_seeds(options.first, options.seeds)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 1 if result["failing"] else 0


if __name__ == "__main__":
    with ending_what_it_started():
        sys.exit(main())
