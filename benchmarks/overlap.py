"""Overlap trials: what is lost when an old execution is still alive while its replacement works.

    python benchmarks/overlap.py --trials 1000            a table
    python benchmarks/overlap.py --trials 1000 --json     the same for a script
    python benchmarks/overlap.py --trials 1 --seed 4711 --design pointer --explain      one trial, in words

**A trial.** Three executions of one lineage, each a process of its own: the old one, its replacement, and the
replacement of that. Each resumes from what its design gives it, then saves every 10 steps, 2 to 6 times. A seed draws
who runs when, alone or side by side, and where each is stopped (SIGSTOP) while others go on: before one of its
operations on the file system, in the middle of a file, or after some milliseconds, wherever it is by then. Later it
goes on (SIGCONT) where it was, or is killed. When all have ended, a last execution resumes. A seed draws the same for
every design; what is drawn as "so far into a save" means that part of the operations that a save has in that design.

**The designs**, as they are run in practice; where one could be made kinder without becoming another, it is:

- ``append_only``: this project. A folder per execution, an exclusively created name per save, ordered by (epoch, step),
  and the resume point imported before it is loaded; all by the helper's own code (``stores.lineage_root``).
- ``pointer``: one folder for all; a save is written to ``global_step<N>``, then the file ``latest`` is read ("is mine
  newer?") and replaced by a temporary file and a rename. So do DeepSpeed's ``save_checkpoint`` and many home-made
  loops. Kinder: DeepSpeed replaces ``latest`` without a look and does not know of executions; here the pointer
  carries the epoch, an older execution leaves a newer one's pointer alone and then deletes nothing, and the rotation
  spares what the pointer was set to.
- ``isolated_pointer`` (only where asked for): the same with a folder per execution, so that the pointer itself is all
  that can be lost. A pointer that is "checked, then renamed" was reported to lose 4 of 40 overlapping trials
  (documentation of the Go project dispatch, "Isolated checkpoints and append-only publication"), append-only 0 of 40.
- ``highest_step``: one folder for all; ``checkpoint-<N>`` is written in place, ``trainer_state.json`` last, and the
  highest N is resumed from. So does the Trainer of transformers (``get_last_checkpoint``). Kinder: a folder that lacks
  ``trainer_state.json`` is passed over, where the library takes it and fails.

All rotate as the Trainer's ``save_total_limit`` does: of the numbered folders beside the new one, the highest 2 or 3
stay. In ``append_only`` it rotates before the save is published, which is when a Trainer does, and the harder way.

**What is counted**, in trials (the judge reads checksums, writer and step from every file and knows no design):

- ``wrong``: a resume took something else than the greatest (epoch, step) that executions before it had committed when
  it began.
- ``deleted``: one of the newest committed saves, as many as rotation keeps, is gone or was written over at the end,
  and not because its own writer has outdone it; or a save went away while a resume read it.
- ``torn``: a load mixed two saves, missed a file or failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ending import ending_what_it_started, folder, number_of, passing_folder
from overlap_trials.append_only import AppendOnly
from overlap_trials.design import Design, Setting
from overlap_trials.highest_step import HighestStep
from overlap_trials.judge import Verdict
from overlap_trials.pointer import IsolatedPointer, Pointer
from overlap_trials.schedule import draw
from overlap_trials.tally import table, tally
from overlap_trials.trial import Contestant, measure, run_trial
from overlap_trials.workers import run_side_by_side

DESIGNS: Mapping[str, Callable[[Setting], Design]] = {
    "append_only": AppendOnly,
    "pointer": Pointer,
    "highest_step": HighestStep,
    "isolated_pointer": IsolatedPointer,
}
USUAL = ("append_only", "pointer", "highest_step")
FIRST_SEED = 20261130


def main(arguments: Sequence[str], designs: Mapping[str, Callable[[Setting], Design]] = DESIGNS) -> int:
    """Run the trials that the command line asks for, print what they lost, and leave nothing behind."""
    options = parse(arguments, designs)
    tallies = {}
    with passing_folder("overlap-", options.folder) as place:
        for name in options.design:
            begin = time.monotonic()
            contestant = measure(name, designs[name], place / "measure")
            verdicts: list[tuple[int, Verdict]] = []
            seeds = range(options.seed, options.seed + options.trials)
            with closing(run_side_by_side(trial_of(contestant, place), seeds, options.workers)) as results:
                for seed, verdict in results:
                    verdicts.append((seed, verdict))
                    if options.explain:
                        explain(name, seed, verdict)
                    show_progress(name, len(verdicts), options.trials)
            tallies[name] = tally(sorted(verdicts, key=lambda entry: entry[0]), time.monotonic() - begin)
    print(json.dumps(tallies, indent=2) if options.json else table(tallies))
    return 0


def trial_of(contestant: Contestant, place: Path) -> Callable[[int, int], Verdict]:
    return lambda worker, seed: run_trial(contestant, draw(seed), place / f"worker-{worker}")


def parse(arguments: Sequence[str], designs: Mapping[str, Callable[[Setting], Design]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What is lost when an old execution outlives its replacement's start.")
    parser.add_argument("--trials", type=number_of("trials"), default=100, help="trials of each design (default: 100)")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the first trial's seed; the next has the next")
    parser.add_argument(
        "--design",
        action="append",
        choices=list(designs),
        help="only this design; may be given more than once",
    )
    parser.add_argument(
        "--workers", type=number_of("processes"), default=4, help="trials that run at the same time (default: 4)"
    )
    parser.add_argument("--folder", type=folder, help="where the trials keep their files meanwhile (default: $TMPDIR)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--explain", action="store_true", help="say on standard error what each trial lost, and how")
    options = parser.parse_args(arguments)
    options.design = options.design or list(USUAL)
    return options


def explain(name: str, seed: int, verdict: Verdict) -> None:
    for kind in ("wrong", "deleted", "torn", "failed"):
        for line in getattr(verdict, kind):
            print(f"{name} seed {seed} {kind}: {line}", file=sys.stderr)


def show_progress(name: str, done: int, trials: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name}: {done} of {trials}", end="\n" if done == trials else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    with ending_what_it_started():
        sys.exit(main(sys.argv[1:]))
