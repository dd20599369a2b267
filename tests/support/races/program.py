"""A program that lets processes race: it forks them, holds all at one gate, opens it, kills some, and tells what came.

It reads one JSON object a line, ``{"writers": [run, …], "readers": [run, …], "kills": [[writer, seconds], …]}``, where
a run is ``{"act": name, …}`` with the act's arguments, and answers with one line, the outcomes of writers and readers.
It exists since starting a Python for each racer would cost more than the race, and a fork of a small program is cheap.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect_dispatch.errors import DispatchError
from support.races import acts, looks
from support.races.places import Look

ACTS = {**acts.ACTS, **looks.LOOKS}
MOST_FAULTS = 5


def look_until(look: Look, stop: int) -> dict[str, Any]:
    """Look over and over until the writers have ended, and once more."""
    looks = 0
    faults: list[str] = []
    while len(faults) < MOST_FAULTS:
        last = bool(select.select([stop], [], [], 0)[0])
        faults += look()
        looks += 1
        if last:
            break
    return {"looks": looks, "faults": faults[:MOST_FAULTS]}


@contextmanager
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def shut(ends: list[int], which: int) -> None:
    """Close one end of a pipe; end-of-file is what its other end waits for."""
    os.close(ends[which])
    ends[which] = os.open(os.devnull, os.O_RDONLY)


def fork(run: dict[str, Any], ready: list[int], gate: list[int], stop: list[int], reads: bool) -> tuple[int, int]:
    """Start one racer; returns its process id and where its outcome can be read."""
    source, sink = os.pipe()
    process = os.fork()
    if process:
        os.close(sink)
        return process, source
    try:
        for ends in (gate, stop):
            shut(ends, 1)
        try:
            try:
                act = ACTS[run.pop("act")](**run)
            finally:
                os.write(ready[1], b".")
            os.read(gate[0], 1)
            outcome = {"ended": "done", "value": look_until(act, stop[0]) if reads else act()}
        except DispatchError as error:
            outcome = {"ended": type(error).__name__, "value": str(error)}
        with open(sink, "w") as answer:
            json.dump(outcome, answer)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def race(writers: list[dict[str, Any]], readers: list[dict[str, Any]], kills: list[list[float]]) -> dict[str, Any]:
    with pipe() as ready, pipe() as gate, pipe() as stop:
        runs = [fork(run, ready, gate, stop, False) for run in writers]
        looking = [fork(run, ready, gate, stop, True) for run in readers]
        shut(ready, 1)
        waiting = len(runs) + len(looking)
        while waiting and (dots := os.read(ready[0], waiting)):
            waiting -= len(dots)
        shut(gate, 1)
        began = time.monotonic()
        for index, after in sorted(kills, key=lambda each: each[1]):
            time.sleep(max(0.0, began + after - time.monotonic()))
            os.kill(runs[int(index)][0], signal.SIGKILL)
        outcomes = [gather(*run) for run in runs]
        shut(stop, 1)
        return {"writers": outcomes, "readers": [gather(*run) for run in looking]}


def gather(process: int, source: int) -> dict[str, Any]:
    """One racer's outcome, when it has ended."""
    with open(source) as answer:
        text = answer.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return {"ended": "killed", "value": os.WTERMSIG(status)}
    return json.loads(text) if text else {"ended": "crashed", "value": "see its traceback"}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(race(**json.loads(line))) + "\n")
        sys.stdout.flush()
