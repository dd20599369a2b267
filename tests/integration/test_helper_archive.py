"""The helper as one file: any Python runs it with nothing installed, and it holds through the life of a job."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli.helper_archive import helper_content, write_helper
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_lineage_root, open_record
from support.pythons import python_of

SAVES = """
import os, pathlib
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"], "save")
folder.mkdir()
(folder / "weights").write_text("weights of step 40")
(folder / ".complete").write_text("40")
"""


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("helper") / "dispatch-job.pyz"
    assert main(["helper", "-o", str(path)]) == 0
    return path


def run(job: Any, python: str, helper: Path, number: int, *command: str) -> subprocess.CompletedProcess[str]:
    words = [python, "-I", "-S", "-W", "error", str(helper), "run", "--submission", str(job.document(number))]
    return subprocess.run(
        [*words, "--", *command], env=job.environment(), cwd=job.folder, capture_output=True, text=True, timeout=40
    )


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_any_python_runs_it_with_nothing_installed(job: Any, helper: Path, version: str) -> None:
    # given a Python without site-packages
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH or among pyenv's versions")
    # when a job saves, and the next execution goes on from the save
    first = run(job, python, helper, 1, sys.executable, "-c", SAVES)
    second = run(job, python, helper, 2, "sh", "-c", "cat $DISPATCH_RESUME_FROM/weights")
    # then
    assert (first.returncode, first.stderr) == (0, "")
    assert "weights of step 40" in second.stdout, second.stderr


def test_the_same_modules_make_the_same_bytes(helper: Path) -> None:
    assert helper_content() == helper.read_bytes()


def test_an_interpreter_that_it_was_written_for_compiles_nothing(helper: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-v", str(helper), "env"], capture_output=True, text=True, timeout=40
    ).stderr
    imported = [line for line in told.splitlines() if line.startswith("import 'prefect_dispatch")]
    assert len(imported) > 5
    assert all(f"/{sys.implementation.cache_tag}/" in line for line in imported), imported


def test_another_interpreter_may_be_named(tmp_path: Path) -> None:
    other = python_of("3.9")
    if other is None:
        pytest.skip("no Python 3.9 on PATH or among pyenv's versions")
    path = tmp_path / "dispatch-job.pyz"

    assert main(["helper", "-o", str(path), "--python", other, "--python", sys.executable]) == 0

    told = subprocess.run(
        [other, "-I", "-S", "-v", str(path), "env"], capture_output=True, text=True, timeout=40
    ).stderr
    assert "cpython-39/prefect_dispatch/job/__main__.pyc" in told


@pytest.mark.parametrize("how", ["written over", "replaced", "removed", "kept from us"])
def test_a_job_whose_file_goes_meanwhile_still_publishes_its_last_save(job: Any, tmp_path: Path, how: str) -> None:
    """What the end of a job needs is imported at its end, as it was when the job started."""
    own = tmp_path / "own.pyz"
    write_helper(own)
    (job.folder / "other").write_bytes(b"no archive")
    commands = {
        "written over": f"open({str(own)!r}, 'wb').write(b'no archive')",
        "replaced": f"os.replace('other', {str(own)!r})",
        "removed": f"os.unlink({str(own)!r})",
        "kept from us": f"os.chmod({str(own)!r}, 0)",
    }

    done = run(job, sys.executable, own, 1, sys.executable, "-c", f"import os; {commands[how]}\n{SAVES}")

    assert (done.returncode, done.stderr) == (0, "")
    assert job.steps() == [40]


def test_a_module_of_the_job_takes_no_place_of_the_librarys(job: Any, helper: Path) -> None:
    # given a job whose folder, which is on PYTHONPATH, has modules of such names
    for name in ("select", "json", "signal", "threading", "math", "struct"):
        (job.folder / f"{name}.py").write_text("raise SystemExit('not the library')")
    words = [sys.executable, str(helper), "run", "--submission", str(job.document()), "--", "true"]
    environment = {**job.environment(), "PYTHONPATH": ":/nowhere"}
    # when
    done = subprocess.run(words, env=environment, cwd=job.folder, capture_output=True, text=True, timeout=40)
    # then
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_finds_its_standard_input_though_the_helper_got_none(job: Any, helper: Path) -> None:
    program = "import os; print('input', os.readlink('/proc/self/fd/0'))"
    words = [
        sys.executable,
        str(helper),
        "run",
        "--submission",
        str(job.document()),
        "--",
        sys.executable,
        "-c",
        program,
    ]
    command = f"exec {shlex.join(words)} <&-"

    done = subprocess.run(
        ["sh", "-c", command], env=job.environment(), cwd=job.folder, capture_output=True, text=True, timeout=40
    )

    assert "input /dev/null" in done.stdout, done.stderr


@pytest.mark.parametrize("version", ["3.6", "3.8"])
def test_a_python_that_is_too_old_is_told(helper: Path, version: str) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH or among pyenv's versions")

    done = subprocess.run([python, str(helper), "env"], capture_output=True, text=True, timeout=40)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"dispatch-job: this is Python {version}; start it with 3.9 or newer\n"


def test_a_file_is_written_over_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert main(["helper", "-o", str(pipe)]) == 2

    assert capsys.readouterr().err == f"prefect-dispatch: {pipe} is there and no file; give another path\n"
    assert list(tmp_path.iterdir()) == [pipe] and pipe.is_fifo()


def test_the_local_scheduler_runs_its_jobs_by_it(tmp_path: Path, helper: Path) -> None:
    # given a job whose scheduler is told of the file
    (tmp_path / "train.py").write_text(SAVES + "import sys; sys.exit(0)")
    scheduler = {"type": "local", "state_folder": "state", "helper": [sys.executable, "-I", "-S", str(helper)]}
    spec = {"lineage": "digits", "command": ["python", "train.py"], "store": {"root": "runs"}, "scheduler": scheduler}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**spec, "saves": {"kind": "marker"}}))
    job = resolve_job(path)
    record = open_record(str(tmp_path / "runs"), "digits", SystemClock())
    open_lineage(record, job, plan_of(job))

    # when
    async def finish() -> Any:
        supervisor = supervisor_of(record, record.refresh(), SystemClock())
        async with asyncio.timeout(60):
            while (state := (await supervisor.advance()).state).finished is None:
                await asyncio.sleep(0.05)
        return state.finished

    finished = asyncio.run(finish())

    # then
    assert finished.outcome is Outcome.SUCCEEDED
    assert [each.step for each in open_lineage_root(str(tmp_path / "runs"), "digits").publications()] == [40]
    descriptions = [path.read_text() for path in (tmp_path / "state").rglob("*.json")]
    assert any(str(helper) in text for text in descriptions)


@pytest.mark.parametrize("python", ["no-such-python", "true"])
def test_what_is_no_python_is_named(python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dispatch-job.pyz"

    assert main(["helper", "-o", str(path), "--python", python]) == 2

    told = capsys.readouterr().err
    assert told.count("\n") == 1 and repr(python) in told and "give the path of" in told
    assert list(tmp_path.iterdir()) == []
