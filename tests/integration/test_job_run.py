"""``dispatch-job run`` from claim to exit, with real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prefect_dispatch
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitReason
from prefect_dispatch.format.names import encode_part
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.submission import RestartSource
from support.pythons import python_of

SAVE = """
import os
folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], "step-{step}")
os.mkdir(folder)
with open(os.path.join(folder, "weights"), "w") as file:
    file.write("weights of step {step}")
with open(os.path.join(folder, ".complete"), "w") as file:
    file.write("{step}\\n")
"""


def save(step: int) -> str:
    return SAVE.format(step=step)


def test_a_run_publishes_what_the_program_saved_and_exits_with_its_code(job: Any) -> None:
    ended = job.python(save(40) + "print('trained')\nraise SystemExit(7)")

    assert ended.returncode == 7
    assert b"\ntrained\n" in ended.stdout
    assert [(p.epoch, p.step, p.path) for p in job.publications()] == [
        (Epoch(0, 1, 0), 40, f"exec/{job.attempt()}/step-40")
    ]
    note = job.exit_note()
    assert (note.program_started, note.exit_code, note.own_exit_code, note.reason) == (True, 7, 7, ExitReason.PROGRAM)


def test_a_second_submission_resumes_from_a_copy_of_the_save_of_the_first(job: Any) -> None:
    job.python(save(40))

    ended = job.python(
        "import os, json; e = os.environ\n"
        "print(json.dumps([open(e['DISPATCH_RESUME_FROM'] + '/weights').read(), e['DISPATCH_RESUME_STEP'],"
        " e['DISPATCH_EXEC_DIR'], os.listdir(e['DISPATCH_EXEC_DIR']), e['DISPATCH_RESUME_FROM']]))",
        number=2,
    )

    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout.splitlines()[1])
    assert shown[:2] == ["weights of step 40", "40"]
    assert shown[2:4] == [str(job.exec_folder(2)), []]
    assert shown[4] == f"{job.root}/meta/{job.attempt(2)}/resume/step-40"
    assert b"dispatch: resume digits g0n2r0" in ended.stdout


def test_case_7_a_submission_that_published_nothing_is_looked_past(job: Any) -> None:
    job.python(save(40))
    job.run("true", number=2)

    ended = job.run("sh", "-c", "echo step=$DISPATCH_RESUME_STEP", number=3)

    assert b"step=40\n" in ended.stdout


def test_the_program_gets_its_contract_and_nothing_of_another(job: Any) -> None:
    ended = job.python(
        "import os, json; print(json.dumps(dict(os.environ)))",
        variables={
            "DISPATCH_RESUME_FROM": "/somewhere/else",
            "DISPATCH_SECRET_OF_ANOTHER": "1",
            "SLURM_RESTART_COUNT": "4",
            "PYTHONUNBUFFERED": None,
        },
    )

    seen = json.loads(ended.stdout.splitlines()[1])
    assert {name: value for name, value in seen.items() if name.startswith("DISPATCH_")} == {
        "DISPATCH_LINEAGE": "digits",
        "DISPATCH_ATTEMPT": job.attempt(),
        "DISPATCH_EPOCH": "1000000",
        "DISPATCH_ROOT": str(job.root),
        "DISPATCH_EXEC_DIR": str(job.exec_folder()),
        "DISPATCH_RESUME_FROM": "",
        "DISPATCH_RESUME_STEP": "",
        "DISPATCH_RESUME_STATE": "",
        "DISPATCH_DEADLINE": "",
        "DISPATCH_NOTICE": str(job.root / "meta" / job.attempt() / "notice"),
        "DISPATCH_NOTICE_SIGNAL": "TERM",
        "DISPATCH_WORKPLACE": "",
    }
    assert "SLURM_RESTART_COUNT" not in seen
    assert seen["PYTHONUNBUFFERED"] == "1"  # case 19


@pytest.mark.parametrize("code", [190, 195])
def test_a_reserved_code_of_the_program_comes_out_as_1_with_the_true_one_noted(job: Any, code: int) -> None:
    ended = job.run("sh", "-c", f"exit {code}")

    assert ended.returncode == 1
    assert job.exit_note().exit_code == code
    assert f"exited {code}".encode() in ended.stdout


def test_a_signal_comes_out_as_128_and_its_number(job: Any) -> None:
    ended = job.run("sh", "-c", "kill -USR1 $$")

    assert ended.returncode == 138
    assert (job.exit_note().signal, job.exit_note().exit_code) == (10, None)


def test_the_same_epoch_twice_exits_190_without_starting_the_program(job: Any) -> None:
    job.run("true")

    ended = job.run("sh", "-c", "touch ran")

    assert ended.returncode == 190
    assert ended.stderr.count(b"\n") == 1 and ended.stderr.startswith(b"dispatch-job: epoch g0n1r0 ")
    assert not (job.folder / "ran").exists()


def test_an_older_submission_that_starts_late_exits_190(job: Any) -> None:
    job.run("true", number=2)

    assert job.run("true", number=1).returncode == 190


def test_saves_of_which_none_is_whole_exit_191_and_never_start_from_scratch(job: Any) -> None:
    job.python(save(40))
    (job.exec_folder() / "step-40" / "weights").write_text("")  # case 3: what a power loss leaves

    ended = job.run("sh", "-c", "touch ran", number=2)

    assert ended.returncode == 191
    assert ended.stderr.count(b"\n") == 1 and b"step-40" in ended.stderr
    assert not (job.folder / "ran").exists()
    note = job.exit_note(2)
    assert (note.program_started, note.own_exit_code, note.reason) == (False, 191, ExitReason.REFUSED)


def test_case_4_a_save_that_was_rotated_away_is_passed_over_aloud(job: Any) -> None:
    job.python(save(40) + save(50))
    shutil.rmtree(job.exec_folder() / "step-50")

    ended = job.run("sh", "-c", "echo step=$DISPATCH_RESUME_STEP", number=2)

    assert b"step=40\n" in ended.stdout
    assert b"dispatch: passed over" in ended.stdout and b"step-50" in ended.stdout


@pytest.mark.parametrize(
    ("command", "reason"),
    [("no-such-command", b"is not on PATH"), ("./nowhere/train", b"no such file"), ("./plain", b"not executable")],
)
def test_a_command_that_does_not_exist_exits_2_and_changes_nothing(job: Any, command: str, reason: bytes) -> None:
    (job.folder / "plain").write_text("not a program")

    ended = job.run(command)

    assert ended.returncode == 2
    assert ended.stderr.count(b"\n") == 1 and command.encode() in ended.stderr and reason in ended.stderr
    assert not (job.folder / "root").exists()


def test_a_file_that_the_kernel_refuses_exits_2_and_its_execution_says_that_it_never_started(job: Any) -> None:
    (job.folder / "broken").write_bytes(b"\x7fELF")
    (job.folder / "broken").chmod(0o755)

    ended = job.run("./broken")

    assert ended.returncode == 2 and b"'./broken' cannot be executed" in ended.stderr
    assert job.exit_note().program_started is False


@pytest.mark.parametrize(
    ("variables", "source", "text"),
    [
        ({"DISPATCH_RESTART": None}, RestartSource.ENVIRONMENT, b"DISPATCH_RESTART is not set"),
        ({"DISPATCH_RESTART": "-1"}, RestartSource.ENVIRONMENT, b"DISPATCH_RESTART '-1'"),
        ({"DISPATCH_RESTART": "1000000"}, RestartSource.ENVIRONMENT, b"DISPATCH_RESTART '1000000'"),
        ({"SLURM_RESTART_COUNT": "x"}, RestartSource.SLURM, b"SLURM_RESTART_COUNT 'x'"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, RestartSource.SLURM, b"step of 4 tasks"),
    ],
)
def test_a_restart_that_is_not_known_exits_2(job: Any, variables: Any, source: RestartSource, text: bytes) -> None:
    ended = job.run("true", variables=variables, restart_source=source)

    assert ended.returncode == 2 and text in ended.stderr and ended.stderr.count(b"\n") == 1
    assert not (job.folder / "root").exists()


@pytest.mark.parametrize(("count", "restart"), [(None, 0), ("3", 3)])
def test_slurm_says_the_restart_and_its_silence_is_0(job: Any, count: str | None, restart: int) -> None:
    ended = job.run(
        "sh",
        "-c",
        "echo epoch=$DISPATCH_EPOCH",
        restart_source=RestartSource.SLURM,
        variables={"SLURM_RESTART_COUNT": count},
    )

    assert f"epoch={Epoch(0, 1, restart).number}\n".encode() in ended.stdout


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "--", "true"], ["run", "--submission", "nowhere", "--", "true"]]
)
def test_a_run_without_a_command_or_a_submission_exits_2(job: Any, arguments: list[str]) -> None:
    ended = job.command(*arguments)

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


def test_the_submission_may_be_named_by_the_environment(job: Any) -> None:
    ended = job.command("run", "--", "true", DISPATCH_SUBMISSION=str(job.document()))

    assert ended.returncode == 0, ended.stderr


def test_a_malformed_name_among_the_publications_exits_65_and_is_named(job: Any) -> None:
    job.python(save(40))
    (job.root / "pub" / "checkpoint-50").touch()

    ended = job.run("sh", "-c", "touch ran", number=2)

    assert ended.returncode == 65
    assert b"pub/checkpoint-50" in ended.stderr and ended.stderr.count(b"\n") == 1
    assert not (job.folder / "ran").exists()


def test_a_forged_name_is_told_and_not_followed(job: Any) -> None:
    job.python(save(40))
    forged = Publication(Epoch(0, 1, 5), 90, f"exec/{job.attempt()}/step-40")
    (job.root / "pub" / forged.name).touch()

    ended = job.run("sh", "-c", "echo step=$DISPATCH_RESUME_STEP", number=2)

    assert b"step=40\n" in ended.stdout
    assert b"dispatch: passed over" in ended.stdout and b"step 90" in ended.stdout
    assert job.command("check", str(job.root)).returncode == 65


def test_a_root_that_cannot_be_written_exits_69(job: Any) -> None:
    (job.folder / "root").write_text("a file where the root should be")

    ended = job.run("sh", "-c", "touch ran")

    assert ended.returncode == 69
    assert str(job.folder / "root").encode() in ended.stderr and ended.stderr.count(b"\n") == 1
    assert not (job.folder / "ran").exists()


def test_a_path_of_134_bytes_is_refused_with_the_limit_and_the_run_says_so_by_194(job: Any) -> None:
    prefix = len(f"exec/{job.attempt()}/")
    fits, too_long = "f" * (133 - prefix), "t" * (134 - prefix)  # case 11

    good = job.python(save(40).replace("step-40", fits))
    bad = job.python(save(50).replace("step-50", too_long), number=2)

    assert good.returncode == 0 and len(Publication.parse(job.publications()[0].name).name) <= 255
    assert bad.returncode == 194
    assert b"133" in bad.stdout
    assert job.exit_note(2).reason is ExitReason.SAVES
    assert encode_part(fits) and job.steps() == [40]


def changed(job: Any, change: str, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a wrapper in whose process something was changed beforehand."""
    program = (
        "import os, signal, sys, threading\n"
        "from prefect_dispatch.errors import StoreError\n"
        "from prefect_dispatch.stores.journal import Journal\n"
        "from prefect_dispatch.stores.lineage_root import LineageRoot\n"
        f"{change}\n"
        "from prefect_dispatch.job.__main__ import main\n"
        f"sys.exit(main(['run', '--submission', {str(job.document())!r}, '--', *{list(command)!r}]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=job.folder, env=job.environment(), capture_output=True, timeout=20
    )


def test_a_notice_while_the_start_is_noted_leaves_no_start_without_an_end(job: Any) -> None:
    ended = changed(
        job,
        "start = LineageRoot.start\n"
        "def notice(*arguments): start(*arguments); os.kill(os.getpid(), signal.SIGTERM)\n"
        "LineageRoot.start = notice",
        "touch",
        "ran",
    )

    assert ended.returncode == 143
    assert not (job.folder / "ran").exists()
    assert (job.exit_note().program_started, job.exit_note().reason) == (False, ExitReason.NOTICE)


def test_a_notice_while_a_refusal_is_noted_leaves_no_start_without_an_end(job: Any) -> None:
    ended = changed(
        job,
        "def fail(*_): raise StoreError('no pin')\n"
        "LineageRoot.pin = fail\n"
        "started = LineageRoot.started\n"
        "def notice(*arguments): os.kill(os.getpid(), signal.SIGTERM); return started(*arguments)\n"
        "LineageRoot.started = notice\n",
        "touch",
        "ran",
    )

    assert ended.returncode == 74 and b"no pin" in ended.stderr
    assert job.exit_note().own_exit_code == 74


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_at_the_very_end_does_not_change_the_exit_that_the_journal_tells(job: Any, name: str) -> None:
    """The interpreter, on its own way out, gives every handler back to the kernel's default."""
    ended = changed(
        job,
        "class Last:\n"
        f"    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.{name}): kill(pid, number)\n"
        "sys.last = Last()",
        "true",
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert job.exit_note().own_exit_code == 0


def test_an_exit_entry_for_which_the_disk_has_no_room_is_tried_again(job: Any) -> None:
    ended = changed(
        job,
        "append, failures = Journal.append, [1]\n"
        "def full(*arguments, **fields):\n"
        "    if failures: failures.pop(); raise StoreError('No space left on device')\n"
        "    return append(*arguments, **fields)\n"
        "Journal.append = full",
        "true",
    )

    assert ended.returncode == 0 and b"is lost" not in ended.stdout
    assert job.exit_note().own_exit_code == 0


def test_an_exit_entry_that_cannot_be_written_is_told_in_the_log(job: Any) -> None:
    ended = changed(
        job,
        "import prefect_dispatch.job.clerk as clerk\n"
        "clerk._RETRY_DELAY = 0.01\n"
        "def full(*arguments, **fields): raise StoreError('No space left on device')\n"
        "Journal.append = full",
        "true",
    )

    assert ended.returncode == 0
    assert b"dispatch: journal entry 'exit' is lost: No space left on device\n" in ended.stdout


def test_the_journal_is_listed_once_and_writers_side_by_side_leave_no_gap(job: Any) -> None:
    listed: list[str] = []
    job.lineage_root.prepare("")
    mine, other = (job.lineage_root.journal(job.attempt()) for _ in range(2))
    names = mine._ledger.names
    mine._ledger.names = lambda after="": listed.append(after) or names(after)

    numbers = [each.append("status", text="x").seq for each in (mine, other, other, mine, mine)]

    assert numbers == [1, 2, 3, 4, 5]
    assert listed == [""]


@pytest.mark.parametrize("state", ["a\\0b", "\\ud800"])
def test_a_state_that_no_environment_can_hold_is_named_and_starts_nothing(job: Any, state: str) -> None:
    ended = changed(
        job,
        "from prefect_dispatch.job.run import _Run\n"
        "from dataclasses import replace\n"
        "contract = _Run._contract\n"
        f"_Run._contract = lambda self, pin: replace(contract(self, pin), resume_state='{state}')",
        "touch",
        "ran",
    )

    assert ended.returncode == 65
    assert ended.stderr.count(b"\n") == 1 and b"DISPATCH_RESUME_STATE" in ended.stderr
    assert not (job.folder / "ran").exists()
    assert job.exit_note().program_started is False


def test_what_goes_wrong_between_fork_and_exec_is_no_exit_of_the_program(job: Any) -> None:
    ended = changed(
        job,
        "import prefect_dispatch.job.guardian as guardian\n"
        "def fail(*_): raise ValueError('no such luck')\n"
        "guardian.die_with_parent = fail",
        "touch",
        "ran",
    )

    assert ended.returncode == 74
    assert ended.stderr == b"dispatch-job: command 'touch' cannot be executed: ValueError: no such luck\n"
    assert job.exit_note().program_started is False


def test_a_root_that_can_be_no_path_exits_2_and_is_named(job: Any) -> None:
    ended = job.run("true", root="/\ud800")

    assert ended.returncode == 2
    assert ended.stderr.count(b"\n") == 1 and b"root '/\\ud800'" in ended.stderr


@pytest.mark.parametrize("epoch", ["9" * 5000, "\u0661", "-1", "1" * 20])
def test_an_epoch_that_is_none_exits_2_in_one_line(job: Any, epoch: str) -> None:
    contract = {"LINEAGE": "digits", "ATTEMPT": job.attempt(), "ROOT": str(job.folder), "EPOCH": epoch}

    ended = job.command("env", **{f"DISPATCH_{name}": value for name, value in contract.items()})

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and len(ended.stderr) < 400 and "epoch" in ended.stderr.lower()


@pytest.mark.parametrize("step", ["9" * 5000, "-1", "x"])
def test_a_step_that_is_none_exits_2_in_one_line(job: Any, step: str) -> None:
    ended = job.command("publish", "save", f"--step={step}")

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and len(ended.stderr) < 400 and "--step" in ended.stderr


def test_a_terminal_that_lacks_a_letter_gets_it_escaped_and_a_script_gets_the_paths_own_bytes(job: Any) -> None:
    job.python(save(40).replace("step-40", "s\u00e9"))

    def shown(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "prefect_dispatch.job", *arguments, "--root", str(job.root)],
            env=job.environment(PYTHONIOENCODING="ascii"),
            capture_output=True,
            timeout=20,
        )

    assert shown("list").stdout.endswith(b"/s\\xe9\n")
    assert shown("latest").stdout.endswith("/s\u00e9\n".encode())


def test_nothing_of_prefect_or_pydantic_is_imported() -> None:
    program = (
        "import sys; import prefect_dispatch.job.run, prefect_dispatch.job.commands, prefect_dispatch.job.__main__\n"
        "bad = [name for name in sys.modules if name.partition('.')[0] in ('prefect', 'pydantic', 'yaml', 'psutil')]\n"
        "raise SystemExit(str(bad) if bad else 0)"
    )

    assert subprocess.run([sys.executable, "-c", program], timeout=20).returncode == 0


@pytest.mark.skipif(python_of("3.9") is None, reason="no Python 3.9 on PATH or among pyenv's versions")
def test_the_helper_runs_under_python_39_without_being_installed(job: Any) -> None:
    source = str(Path(prefect_dispatch.__file__).parents[1])
    environment = {**job.environment(), "PYTHONPATH": source}
    helper = [str(python_of("3.9")), "-W", "error", "-m", "prefect_dispatch.job"]

    def run(number: int, *command: str) -> subprocess.CompletedProcess[bytes]:
        arguments = ["run", "--submission", str(job.document(number)), "--", *command]
        return subprocess.run([*helper, *arguments], env=environment, cwd=job.folder, capture_output=True, timeout=20)

    first = run(1, sys.executable, "-c", save(40) + "print('openjd_progress: 50')")
    second = run(2, "sh", "-c", "cat $DISPATCH_RESUME_FROM/weights")

    assert (first.returncode, first.stderr) == (0, b"")
    assert b"weights of step 40" in second.stdout, second.stderr
    assert job.journal("progress") == [{"percent": 50.0}]


def test_what_a_command_says_is_written_or_it_fails(job: Any) -> None:
    job.run("true")

    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "prefect_dispatch.job", "list", "--json", "--root", str(job.root)],
            env=job.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=30,
        )

    assert ended.returncode == 74
    assert ended.stderr.count(b"\n") == 1 and b"No space left on device" in ended.stderr


def test_a_restart_by_the_scheduler_starts_nothing_where_the_checkpoint_is_shared(job: Any) -> None:
    # given a job with a shared checkpoint that the scheduler has restarted by itself
    # when its wrapper starts
    ended = job.run("touch", "ran", variables={"DISPATCH_RESTART": "1"}, shared_checkpoint=True)
    # then it exits 190 before it claims anything
    assert ended.returncode == 190
    assert b"restart by the scheduler" in ended.stderr
    assert not (job.folder / "ran").exists() and not (job.root / "claims").exists()
    # and its first run is one like any other
    assert job.run("true", shared_checkpoint=True).returncode == 0
