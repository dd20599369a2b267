"""Whatever ends a benchmark ends what it started: one way for all of them, and options that are refused in one line."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36
_KINDLY = 2.0
"""Seconds that the children have after a SIGTERM, to end what they had started themselves."""


@contextmanager
def ending_what_it_started() -> Iterator[None]:
    """Leave no process behind, and come out with 128 + n and without a traceback when signal n ends this one.

    A signal comes as ``SystemExit``, so that every ``with`` and ``finally`` within has its turn. A second one changes
    nothing: what is being taken away is taken away.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def leave(number: int, frame: FrameType | None) -> None:
        for each in INTERRUPTIONS:
            signal.signal(each, signal.SIG_IGN)
        for child in children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        sys.exit(128 + number)

    for each in INTERRUPTIONS:
        signal.signal(each, leave)
    try:
        yield
    finally:
        _end_children()


@contextmanager
def passing_folder(prefix: str, parent: Path | None) -> Iterator[Path]:
    """A folder of this process's own, taken away once nothing that this process started can write to it any more."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield made
    finally:
        _end_children()
        shutil.rmtree(made, ignore_errors=True)


def children() -> list[int]:
    """The children of this process, by the kernel's list (proc_pid_task_children)."""
    found: list[int] = []
    for place in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found.extend(map(int, (place / "children").read_text().split()))
    return found


def _end_children() -> None:
    """End the children and, as this process inherits them, whatever they leave behind; those that do not obey too."""
    give_up = time.monotonic() + _KINDLY
    while left := children():
        for child in left:
            with suppress(ProcessLookupError):
                # A stopped one hears of a SIGTERM only when it goes on.
                os.kill(child, signal.SIGTERM if time.monotonic() < give_up else signal.SIGKILL)
                os.kill(child, signal.SIGCONT)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def number_of(things: str) -> Callable[[str], int]:
    """An option's type: a number of things, one or more."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= 1):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {things}; use 1 or more")
        return int(text)

    return read


def folder(text: str) -> Path:
    """An option's type: a folder that is there and can be written to."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder; make it first")
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to; use another folder")
    return path
