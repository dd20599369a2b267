"""The relay: a program's output through the helper, beside the same program through ``cat``."""

from __future__ import annotations

import subprocess
import sys

from rows.helper import environment, installed, submission
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting

LINE = b"step 001234 loss 0.123456 accuracy 0.987654 learning rate 0.000100 elapsed 12.3\n"
_PROGRAM = """
import os, sys
block, left = {line!r} * 13000, int(sys.argv[1])
while left > 0:
    left -= os.write(1, block[:left])
"""


def measure(setting: Setting) -> list[Line]:
    """Have a program print log lines as fast as it can."""
    size = setting.choose(1_000_000_000, 20_000_000)
    count = setting.pairs(7)
    given = environment()
    documents = [submission(setting.folder, number) for number in range(1, count + 2)]
    program = (sys.executable, "-c", _PROGRAM.format(line=LINE), str(size))

    def through_helper(number: int) -> None:
        command = (*installed(), "run", "--submission", documents[number], "--", *program)
        subprocess.run(command, env=given, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def through_cat(number: int) -> None:
        with subprocess.Popen(program, env=given, stdout=subprocess.PIPE) as writer:
            subprocess.run(["cat"], stdin=writer.stdout, stdout=subprocess.DEVNULL, check=True)

    pairs = take_pairs(through_helper, through_cat, count)
    speed = size / 1e6 / pairs.median_ours
    return [
        Line(
            setting.row,
            f"relay of {size // 1_000_000:,} MB of log lines",
            speed,
            size / 1e6 / pairs.median_bare,
            "MB/s",
            1 / pairs.ratio,
            len(pairs),
            speed,
            Target(200, "MB/s", at_least=True),
            f"bare: the same program | cat; both with start and end, {len(LINE)} bytes a line, to /dev/null",
        )
    ]
