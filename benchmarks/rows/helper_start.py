"""The helper's start: from ``dispatch-job run -- true`` to its exit, less a Python that does nothing."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

from prefect_dispatch.cli.helper_archive import write_helper
from prefect_dispatch.schedulers.local import WRAPPER
from rows.helper import environment, installed, submission
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting


def measure(setting: Setting) -> list[Line]:
    """Run a program that does nothing: by the installed command, as the local scheduler does, and by the one file."""
    one_file = setting.folder / "dispatch-job.pyz"
    write_helper(one_file)
    python = (sys.executable, "-I")
    return [
        _measure(setting, "installed", installed(), (sys.executable, "-c", "pass"), 60),
        _measure(setting, "as the local scheduler starts it", WRAPPER, (*python, "-c", "pass"), 60),
        _measure(setting, "as one file", (*python, str(one_file)), (*python, "-c", "pass"), 120),
    ]


def _measure(setting: Setting, how: str, helper: tuple[str, ...], bare: tuple[str, ...], most: int) -> Line:
    folder = setting.folder / how.replace(" ", "-")
    folder.mkdir()
    given = environment()
    count = setting.pairs(30)
    documents = [submission(folder, number) for number in range(1, count + 3)]
    processor: dict[tuple[str, ...], list[float]] = {helper: [], bare: []}

    def run(program: tuple[str, ...], *rest: str | Path) -> None:
        before = _processor_seconds()
        subprocess.run([*program, *rest], env=given, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        processor[program].append(_processor_seconds() - before)

    pairs = take_pairs(
        lambda number: run(helper, "run", "--submission", documents[number], "--", "true"),
        lambda number: run(bare),
        count,
        warm_up=2,
    )
    ours, theirs = (statistics.median(processor[program]) * 1e3 for program in (helper, bare))
    return Line(
        setting.row,
        f"helper's start over python -c pass, {how}",
        pairs.median_ours * 1e3,
        pairs.median_bare * 1e3,
        "ms",
        pairs.ratio,
        len(pairs),
        pairs.difference * 1e3,
        Target(most, "ms"),
        f"{Path(helper[0]).name} run -- true, whole: claim, pin, guardian, program, journal, exit; the figure is "
        f"the median difference of the pairs (in processor time {ours - theirs:.0f} ms: {ours:.0f} less {theirs:.0f})",
    )


def _processor_seconds() -> float:
    """What all children that have ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
