"""The demo's program keeps its promises by itself, without anything of this package."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from prefect_dispatch.model.spec import JobSpec
from support.environment import environment_without

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAM = EXAMPLES / "train_digits.py"
EPOCHS = 6


# Several runs in one process, one after the other: most of a run's time is the loading of its libraries.
IN_TURN = """
import contextlib, io, json, os, sys
sys.path.insert(0, sys.argv[1])
import train_digits
ended = []
for words, variables in json.load(sys.stdin):
    os.environ.update(variables)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = train_digits.main(words)
        except SystemExit as exit:
            code = exit.code
    ended.append((code, output.getvalue()))
json.dump(ended, sys.stdout)
"""


class Run(NamedTuple):
    folder: Path
    words: tuple[str, ...] = ()
    resume_from: Path | None = None
    resume_step: str = ""

    def contract(self) -> dict[str, str]:
        return {
            "DISPATCH_EXEC_DIR": str(self.folder),
            "DISPATCH_RESUME_FROM": str(self.resume_from or ""),
            "DISPATCH_RESUME_STEP": self.resume_step,
        }


class Ended(NamedTuple):
    code: int | str
    output: str


def inherited() -> dict[str, str]:
    return environment_without("DISPATCH_")


def train(*runs: Run) -> list[Ended]:
    """Do the runs in turn in a process of their own."""
    for run in runs:
        run.folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, EXAMPLES],
        input=json.dumps([[["--epochs", str(EPOCHS), *run.words], run.contract()] for run in runs]),
        env=inherited(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*ended) for ended in json.loads(done.stdout)]


def final(folder: Path) -> dict[str, object]:
    document = json.loads((folder / "final.json").read_text())
    assert isinstance(document, dict)
    return document


def saves(folder: Path) -> list[Path]:
    """The whole saves of a folder, by step."""
    return sorted(marker.parent for marker in folder.glob("step-*/.complete"))


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the program ended before its time"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    [ended] = train(Run(folder, ("--keep", str(EPOCHS))))
    assert ended.code == 0, ended.output
    assert f"digest: {final(folder)['digest']}" in ended.output.splitlines()
    return folder


def test_resuming_from_any_save_ends_with_the_same_weights(uninterrupted: Path, tmp_path: Path) -> None:
    # given every save of a run that was not interrupted
    every = saves(uninterrupted)
    assert len(every) == EPOCHS
    # when another process goes on from each of them in folders of their own
    ended = train(*(Run(tmp_path / save.name, (), save, (save / ".complete").read_text().strip()) for save in every))
    # then each ends as the same run, bit for bit
    for save, one in zip(every, ended, strict=True):
        assert one.code == 0, one.output
        assert final(tmp_path / save.name) == final(uninterrupted)
        assert f"resumed from step {int(save.name[5:])}" in one.output


def test_in_a_plain_folder_it_learns_and_reports_and_ends_the_same(uninterrupted: Path, tmp_path: Path) -> None:
    # given none of the contract's variables, when the program runs in some folder
    done = subprocess.run(
        [sys.executable, PROGRAM, "--epochs", str(EPOCHS)],
        cwd=tmp_path,
        env=inherited(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    # then it is the same run, it has learned, and its messages are lines of their own
    assert done.returncode == 0, done.stderr
    assert final(tmp_path) == final(uninterrupted)
    assert final(tmp_path)["steps"] == EPOCHS * 40
    assert float(str(final(tmp_path)["accuracy"])) > 0.8
    progress = re.findall(r"^openjd_progress: ([\d.]+)$", done.stdout, re.MULTILINE)
    assert len(progress) == EPOCHS
    assert float(progress[-1]) == 100
    assert re.search(r"^openjd_status: step 40 of 240, loss \d", done.stdout, re.MULTILINE)


def test_it_keeps_its_newest_saves_and_never_fewer_than_two(uninterrupted: Path, tmp_path: Path) -> None:
    # given a folder with a save that somebody else left
    folder = tmp_path / "exec"
    foreign = folder / "step-000001"
    foreign.mkdir(parents=True)
    # when a run with another seed keeps two, and one would keep a single one
    kept, refused = train(Run(folder, ("--keep", "2", "--seed", "8")), Run(folder, ("--keep", "1")))
    # then its two newest are there, the foreign one is untouched, and fewer is refused
    assert kept.code == 0
    assert [save.name for save in saves(folder)] == ["step-000200", "step-000240"]
    assert foreign.is_dir()
    assert refused.code == 2
    assert "--keep 1: keep at least 2" in refused.output
    # and another seed is another run
    assert final(folder)["digest"] != final(uninterrupted)["digest"]


def test_what_it_cannot_go_on_from_is_refused_in_one_line(uninterrupted: Path, tmp_path: Path) -> None:
    # given a save without its marker, one of another run, and one of another step than announced
    partial, foreign = tmp_path / "partial", tmp_path / "foreign"
    for copy in (partial, foreign):
        shutil.copytree(saves(uninterrupted)[1], copy)
    (partial / ".complete").unlink()
    state = (foreign / "state.json").read_text()
    (foreign / "state.json").write_text(state.replace('"seed": 7', '"seed": 8'))
    # when runs are told to go on from them
    folder = tmp_path / "exec"
    refused = train(Run(folder, (), partial), Run(folder, (), foreign), Run(folder, (), saves(uninterrupted)[1], "120"))
    # then none starts, and each says in one line why
    assert [str(one.code).removeprefix("train_digits: ") for one in refused] == [
        f"{partial} has no .complete: it is not a whole save; choose another",
        f"{foreign} was trained with seed 8, not 7; choose another save",
        f"{saves(uninterrupted)[1]} is of step 80, not 120 as announced",
    ]
    assert list(folder.iterdir()) == []


def test_told_to_end_it_goes_on_saving_for_a_while_and_what_it_saved_is_the_same_run(
    uninterrupted: Path, tmp_path: Path
) -> None:
    # given a run that takes its time and has saved once
    folder = tmp_path / "stubborn"
    folder.mkdir()
    words = ["--epochs", "1000", "--seconds-per-epoch", "0.1", "--stubborn", "0.7", "--keep", "1000"]
    with subprocess.Popen(
        [sys.executable, PROGRAM, *words],
        env={**inherited(), **Run(folder).contract()},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: bool(saves(folder)), process)
        # when it is told to end, again and again
        told = time.monotonic()
        before = len(saves(folder))
        while process.poll() is None and time.monotonic() < told + 60:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.returncode is not None, "each further SIGTERM put off its end"
        output = process.communicate(timeout=60)[0]
        lingered = time.monotonic() - told
    # then it lingered, saved higher steps meanwhile, and ended by its own decision after a last whole save
    assert process.returncode == 143
    assert lingered >= 0.7
    assert len(saves(folder)) >= before + 3
    last = saves(folder)[-1]
    assert f"asked to end: saved step {int((last / '.complete').read_text())}" in output
    # and what goes on from a save that it wrote after that is the run that nobody interrupted
    train(Run(tmp_path / "resumed", (), saves(folder)[before + 1]))
    assert final(tmp_path / "resumed") == final(uninterrupted)


def test_killed_between_a_saves_files_and_its_marker_it_leaves_no_save(uninterrupted: Path, tmp_path: Path) -> None:
    # given a program that dies in the moment before a marker appears
    stopped_short = (
        "import os, sys; sys.path.insert(0, sys.argv.pop(1)); import train_digits;"
        "train_digits.write_whole = lambda path, text: os.kill(os.getpid(), 9);"
        "train_digits.main([])"
    )
    # when it runs
    done = subprocess.run(
        [sys.executable, "-c", stopped_short, EXAMPLES],
        env={**inherited(), **Run(tmp_path).contract()},
        capture_output=True,
        timeout=120,
    )
    # then its files are there and no save is
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "step-000040" / "weights.npz").exists()
    assert saves(tmp_path) == []


def test_the_example_spec_is_a_valid_job() -> None:
    yaml = pytest.importorskip("yaml")
    spec = JobSpec.read(yaml.safe_load((EXAMPLES / "digits.yaml").read_text()), "digits.yaml")
    assert spec.command[1] == PROGRAM.name
    assert spec.saves.kind.value == "marker"
