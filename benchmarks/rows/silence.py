"""A silent job: what wrapper and guardian use of the processor while the program says and saves nothing."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from prefect_dispatch.format.saves import Saves
from rows.helper import environment, installed, submission
from rows.line import Line, Target
from rows.setting import Setting

SOURCES = {"explicit": {"kind": "explicit"}, "marker": {"kind": "marker", "marker": ".complete"}}


def measure(setting: Setting) -> list[Line]:
    """Count the processor time of a wrapper and its guardian around a program that sleeps."""
    return [_measure(setting, number, kind) for number, kind in enumerate(SOURCES, 1)]


def _measure(setting: Setting, number: int, kind: str) -> Line:
    seconds = setting.choose(20.0, 0.3)
    setting.tell(f"  watching a silent job of saves.kind {kind} for {seconds:g} s")
    document = submission(setting.folder, number, Saves.decode(SOURCES[kind]))
    ready = setting.folder / f"ready-{number}"
    command = (*installed(), "run", "--submission", document, "--", "sh", "-c", f"touch {ready}; exec sleep 3600")
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as wrapper:
        try:
            while not ready.exists():
                time.sleep(0.01)
            time.sleep(setting.choose(1.0, 0.1))  # Past the start, which is another row.
            family = [wrapper.pid, *children_of(wrapper.pid)]
            begin, before = time.monotonic(), sum(map(processor_seconds, family))
            time.sleep(seconds)
            spent = sum(map(processor_seconds, family)) - before
            share = 100 * spent / (time.monotonic() - begin)
        finally:
            wrapper.terminate()
    return Line(
        setting.row,
        f"processor time of a silent job, saves.kind {kind}",
        share,
        None,
        "%",
        None,
        1,
        share,
        Target(2, "%"),
        f"wrapper and guardian together over {seconds:g} s, of one core",
    )


def children_of(pid: int) -> list[int]:
    """The children of a process, by the kernel's list (proc_pid_task_children)."""
    threads = os.listdir(f"/proc/{pid}/task")
    return [
        int(child) for thread in threads for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    ]


def processor_seconds(pid: int) -> float:
    """Seconds that all threads of a process have run, to the nanosecond (its ``schedstat``)."""
    threads = os.listdir(f"/proc/{pid}/task")
    return sum(int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0]) for thread in threads) / 1e9
