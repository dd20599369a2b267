"""The program's output: passed on byte for byte, read for messages, and never a reason to lose the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice


def without_our_lines(output: bytes) -> bytes:
    return b"".join(line for line in output.splitlines(keepends=True) if not line.startswith(b"dispatch: "))


def writing(data: bytes) -> str:
    return f"import os; os.write(1, {data!r})"


@pytest.mark.parametrize(
    "data",
    [
        b"one byte \xff that is no UTF-8, \xc3 a character cut\n",
        b"line\r\nopenjd_progress: 10\r\nend\r\n",
        b"10%\r20%\r30%\ropenjd_progress: 30\r40%\n",
        b"\0\n\n\r\r\n",
        b"dispatc\nnot ours\n",
    ],
)
def test_case_16_output_passes_unchanged(job: Any, data: bytes) -> None:
    ended = job.python(writing(data))

    assert ended.returncode == 0
    assert ended.stdout.splitlines(keepends=True)[0].startswith(b"dispatch: start ")
    assert without_our_lines(ended.stdout) == data


def test_output_without_a_last_newline_passes_and_our_line_stands_alone(job: Any) -> None:
    ended = job.python(writing(b"openjd_progress: 70"))

    assert ended.stdout.endswith(b"openjd_progress: 70\ndispatch: exit 0: the program exited 0\n")
    assert job.journal("progress") == [{"percent": 70.0}]


def test_much_output_passes_unchanged_with_our_lines_only_between_its_lines(job: Any) -> None:
    program = (
        "import os, sys\n"
        "folder = os.environ['DISPATCH_EXEC_DIR']\n"
        "for step in range(1, 201):\n"
        "    os.write(1, b''.join(b'%d line %d of the output\\n' % (step, i) for i in range(2000)))\n"
        "    if step % 50 == 0:\n"
        "        open(f'{folder}/s{step}', 'w').write('x'); open(f'{folder}/s{step}.complete', 'w').write(str(step))\n"
    )

    ended = job.python(program, watch_interval=timedelta(seconds=0.02))

    expected = b"".join(b"%d line %d of the output\n" % (step, i) for step in range(1, 201) for i in range(2000))
    assert without_our_lines(ended.stdout) == expected
    assert job.steps() == [50, 100, 150, 200]


@pytest.mark.parametrize("ending", [b"\r", b"\n", b"\r\n", b""])
def test_messages_count_behind_a_rank_prefix_and_at_any_line_end(job: Any, ending: bytes) -> None:
    ended = job.python(writing(b"5%\r[default0]:openjd_status: epoch 3 \xc3\xa9" + ending))

    assert ended.returncode == 0
    assert job.journal("status") == [{"text": "epoch 3 é"}]


def test_messages_cut_at_any_place_are_put_together(job: Any) -> None:
    program = "import os\nfor byte in b'x\\nopenjd_fail: too hot \\xc3\\xa9\\n': os.write(1, bytes([byte]))"

    ended = job.python(program)

    assert ended.returncode == 1
    assert job.journal("fail") == [{"text": "too hot é"}]
    assert job.exit_note().reason is ExitReason.FAIL


def test_openjd_fail_ends_as_failed_and_keeps_the_programs_own_code(job: Any) -> None:
    ended = job.python("print('openjd_fail: diverged'); raise SystemExit(9)")

    assert ended.returncode == 9
    assert b"diverged" in ended.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("openjd_progress: nan", "0 to 100"),
        ("openjd_progress: 101", "0 to 100"),
        ("openjd_progress: ", "0 to 100"),
        ('openjd_task_complete: {"Frame": 12}', "not in this version"),
        ('openjd_checkpoint_resume_status: {"status": "RESUMED"}', "not in this version"),
        ('openjd_checkpoint_files: {"files": []}', "not in this version"),
        ("openjd_checkpoint_save: {", "not JSON"),
        ("openjd_frobnicate: 1", "is not a message"),
    ],
)
def test_a_message_that_cannot_be_taken_is_told_and_stops_nothing(job: Any, line: str, reason: str) -> None:
    ended = job.python(f"print({line!r}); print('openjd_progress: 50')")

    assert ended.returncode == 0
    (refused,) = job.journal("refused")
    assert refused["line"] == line and reason in refused["reason"]
    assert f"dispatch: message refused: {refused['reason']}".encode() in ended.stdout
    assert job.journal("progress") == [{"percent": 50.0}]


def test_nonsense_without_end_is_reported_with_a_bound(job: Any) -> None:
    ended = job.python("for _ in range(2000): print('openjd_progress: much')")

    assert ended.returncode == 0
    assert len(job.journal("refused")) == 100
    assert ended.stdout.count(b"dispatch: message refused") == 100


def test_progress_without_end_is_noted_seldom_and_its_last_value_is_noted(job: Any) -> None:
    ended = job.python(
        "import time\nfor i in range(101): print(f'openjd_progress: {i}'); time.sleep(0.005)",
        watch_interval=timedelta(hours=1),
    )

    assert ended.returncode == 0
    noted = job.journal("progress")
    assert len(noted) <= 2 and noted[-1] == {"percent": 100.0}


def test_a_line_without_end_is_relayed_in_bounded_memory(job: Any, end: Any) -> None:
    megabytes = 64
    process = job.start(
        *(
            sys.executable,
            "-c",
            f"import os\nfor _ in range({megabytes}): os.write(1, b'openjd_status: ' + b'x' * 1048561)\n"
            "while not os.path.exists('finish'): pass",
        ),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    read = 0
    while read < megabytes * 1048576:
        read += len(os.read(process.stdout.fileno(), 1048576))
    with open(f"/proc/{process.pid}/status") as file:
        (peak,) = (int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    (job.folder / "finish").touch()

    ended = end(process)

    assert peak < 60 * 1024
    assert ended.returncode == 0
    assert "longer than" in job.journal("refused")[0]["reason"]


def test_a_closed_output_does_not_end_the_job(job: Any, end: Any) -> None:
    program = (
        "import os, time\nwhile not os.path.exists('finish'): time.sleep(0.01)\n"
        "for _ in range(300): os.write(1, b'x' * 9999 + b'\\n')\nos.write(1, b'openjd_progress: 90\\n')"
    )
    process = job.start(sys.executable, "-c", program)
    process.stdout.close()
    process.stdout = None
    (job.folder / "finish").touch()

    ended = end(process)

    assert ended.returncode == 0
    assert job.journal("progress") == [{"percent": 90.0}]


def test_an_output_that_nobody_reads_does_not_keep_the_notice_from_the_program(job: Any, wait_until: Any) -> None:
    program = (
        "import os, signal, sys\nopen('leader', 'w').write(f'{os.getpid()}\\n')\n"
        "while True: os.write(1, b'x' * 99 + b'\\n')"
    )
    process = job.start(sys.executable, "-c", program, notice=Notice("TERM", timedelta(seconds=5)))
    leader = job.pid("leader")
    wait_until(lambda: Path(f"/proc/{leader}/wchan").read_text().startswith(("pipe", "0")))

    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 143
    assert job.exit_note().signal == signal.SIGTERM


def test_an_output_that_was_closed_beforehand_takes_nothing_of_ours(job: Any) -> None:
    """Else one of our own pipes would get the number 1, and the log would go into it."""
    look = "readlink /proc/$(cat pid)/fd/1 > target"
    command = (
        f"echo $$ > pid; exec {sys.executable} -m prefect_dispatch.job run --submission {job.document()}"
        f" -- sh -c 'echo hello; {look}' >&-"
    )

    ended = subprocess.run(
        ["sh", "-c", command], cwd=job.folder, env=job.environment(), capture_output=True, timeout=20
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (job.folder / "target").read_text() == "/dev/null\n"
