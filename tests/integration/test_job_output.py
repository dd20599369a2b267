"""The program's output: passed on byte for byte, read for messages, and never a reason to lose the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.job.output import MAX_WAITING, Output


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
        ('openjd_checkpoint_resume_status: {"status": "RESUMED"}', "was not resumed"),
        ('openjd_checkpoint_files: {"files": []}', "a data set is refused: saves.kind is 'marker'"),
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


def test_a_flood_of_save_messages_holds_up_neither_the_program_nor_the_notice(
    job: Any, end: Any, wait_until: Any
) -> None:
    """Each one that is superseded is something to say, in the thread that reads the program's pipe."""
    program = (
        "import os, sys, time\n"
        'for _ in range(150_000): sys.stdout.write(\'openjd_checkpoint_save: {"state": "a"}\\n\')\n'
        "sys.stdout.flush()\nopen('written', 'w').close()\ntime.sleep(60)\n"
    )
    with open(job.folder / "log", "wb") as log_file:
        process = job.start(sys.executable, "-c", program, saves={"kind": "messages"}, stdout=log_file)
    wait_until((job.folder / "written").exists)

    process.send_signal(signal.SIGTERM)
    ended = end(process)

    log = (job.folder / "log").read_bytes()
    assert ended.returncode == 143
    assert b"saves by message were superseded" in log and log.endswith(b"SIGTERM\n")
    assert log.count(b"dispatch: ") < 1000


def test_a_flood_of_failures_is_noted_with_a_bound_and_keeps_no_save_waiting(job: Any) -> None:
    program = (
        "for i in range(3000): print('openjd_fail: reason', i)\nprint('openjd_checkpoint_save: {\"state\": \"now\"}')\n"
    )

    ended = job.python(program, saves={"kind": "messages"})

    assert ended.returncode == 1
    assert len(job.journal("fail")) == 100 and b"reason 2999" in ended.stdout.splitlines()[-1]
    assert job.steps() == [1]


def test_a_message_before_the_programs_end_counts_though_nobody_reads_the_output(job: Any, wait_until: Any) -> None:
    """The reader stalls while the program ends, and takes the rest when it is back."""
    lines = (MAX_WAITING + 900_000) // 100  # More than is read ahead, and all of it fits into the pipe beyond that.
    program = (
        f"import os\nfor _ in range({lines // 10}): os.write(1, (b'y' * 99 + b'\\n') * 10)\n"
        'os.write(1, b\'openjd_checkpoint_save: {"state": "last"}\\n\')\n'
    )
    process = job.start(sys.executable, "-c", program, saves={"kind": "messages"})

    wait_until(lambda: job.prepared and job.lineage_root.journal(job.attempt()).entries())

    assert job.exit_note().exit_code == 0
    assert job.steps() == [1]
    output = process.communicate(timeout=20)[0]
    assert output.count(b"y" * 99 + b"\n") == lines // 10 * 10
    assert output.endswith(b"dispatch: exit 0: the program exited 0\n")


def test_a_descriptor_that_can_not_be_written_for_a_while_loses_that_and_says_how_much(tmp_path: Path) -> None:
    """As a full disk does: a limit on the file's size is one that a test can lift."""
    log = tmp_path / "log"
    program = (
        "import os, resource\n"
        "from prefect_dispatch.job.output import Output\n"
        "target = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))\n"
        "output = Output(target)\noutput.start()\n"
        "output.put(b'a' * 99 + b'\\n')\noutput.put(b'b' * 99 + b'\\n')\noutput.put(b'c' * 99 + b'\\n')\n"
        "while output._chunks or output._waiting: pass\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "output.put(b'important\\n')\noutput.say('end')\noutput.close(5)\n"
    )

    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=20)

    lines = log.read_bytes().split(b"\n")
    assert lines[:2] == [b"a" * 99, b"b" * 50]
    assert lines[2] == b"dispatch: 150 bytes of output are lost here: File too large"
    assert lines[3:] == [b"important", b"dispatch: end", b""]


def test_lines_of_ours_that_nobody_reads_are_bounded_and_the_last_ones_are_kept() -> None:
    read, write = os.pipe()
    output = Output(write)
    for number in range(5000):
        output.say(f"line {number}")
    output.put(b"open end")

    output.close(5)
    os.close(write)
    with open(read, "rb") as file:
        lines = file.read().splitlines()

    assert lines[0] == b"dispatch: 4000 lines of ours are left out: nobody read them in time"
    assert lines[1] == b"dispatch: line 4000" and lines[-2:] == [b"dispatch: line 4999", b"open end"]


def test_output_that_goes_on_after_the_programs_end_is_dropped_in_bounded_memory_and_told() -> None:
    read, write = os.pipe()
    output = Output(write)
    output.hurry()
    for _ in range(40):
        output.put(b"x" * (1024 * 1024 - 1) + b"\n")
        output.wait_for_room()
    kept: list[bytes] = []
    reader = threading.Thread(target=lambda: kept.extend(iter(lambda: os.read(read, 1 << 20), b"")))
    reader.start()

    output.close(5)
    os.close(write)
    reader.join()
    os.close(read)

    last = b"".join(kept).splitlines()[-1]
    assert last == b"dispatch: 33554432 bytes of output after the program's end are lost: nobody read them in time"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_of_the_program_gets_the_number_of_a_standard_descriptor(job: Any, closed: str) -> None:
    program = "open('number', 'w').write(str(open('other', 'w').fileno()))"
    (job.folder / "train.py").write_text(program)
    command = (
        f"exec {sys.executable} -m prefect_dispatch.job run --submission {job.document()}"
        f" -- {sys.executable} train.py {closed}"
    )

    ended = subprocess.run(
        ["sh", "-c", command], cwd=job.folder, env=job.environment(), capture_output=True, timeout=20
    )

    assert ended.returncode == 0
    assert int((job.folder / "number").read_text()) > 2
