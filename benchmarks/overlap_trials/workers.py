"""The workers: several trials at a time, since a trial mostly waits for the disk; and nothing left when they end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ending import INTERRUPTIONS

from overlap_trials.judge import Verdict
from overlap_trials.processes import fork, take_in_orphans


class WorkerFailed(Exception):
    """A worker ended before its trials did; what it said is on standard error."""


def run_side_by_side(
    work: Callable[[int, int], Verdict], seeds: Sequence[int], workers: int
) -> Iterator[tuple[int, Verdict]]:
    """Run trials in several processes; yields each seed and its verdict as it is done.

    Args:
        work: runs one trial, given the worker's number and the seed.
        seeds: the trials.
        workers: how many processes share them.

    Raises:
        WorkerFailed: one ended early.
    """
    take_in_orphans()
    children: list[int] = []
    with selectors.DefaultSelector() as selector:
        try:
            # An interruption in between a fork and its entry in the list would leave a worker that nobody ends.
            signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
            for number in range(workers):
                share = seeds[number::workers]
                reading, writing = os.pipe()
                children.append(fork(lambda n=number, s=share, end=writing: _work(work, n, s, end)))
                os.close(writing)
                selector.register(os.fdopen(reading, "rb"), selectors.EVENT_READ)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
            yield from _results(selector)
            _wait(children)
        finally:
            _end(children)
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]


def _work(work: Callable[[int, int], Verdict], number: int, seeds: Sequence[int], end: int) -> None:
    for interruption in (signal.SIGINT, signal.SIGHUP):
        signal.signal(interruption, signal.SIG_IGN)  # Its parent hears it too, and says what to do.
    signal.signal(signal.SIGTERM, lambda received, frame: sys.exit(128 + received))
    with open(end, "wb", buffering=0) as pipe:
        for seed in seeds:
            pipe.write(json.dumps([seed, asdict(work(number, seed))]).encode() + b"\n")


def _results(selector: selectors.BaseSelector) -> Iterator[tuple[int, Verdict]]:
    while selector.get_map():
        for key, _ in selector.select():
            pipe: Any = key.fileobj
            line = pipe.readline()
            if line.endswith(b"\n"):
                seed, verdict = json.loads(line)
                yield seed, Verdict(**verdict)
            else:
                selector.unregister(pipe)
                pipe.close()


def _wait(children: list[int]) -> None:
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    children.clear()
    if any(codes):
        raise WorkerFailed(f"workers came out with {codes}")


def _end(children: Sequence[int]) -> None:
    """Have the workers end their trials, and wait for whatever they had started, which dies with them."""
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
