"""A bench for real ``dispatch-job`` processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.journal import ExitNote
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.stores.layout import FORMAT_DOCUMENT
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.s3 import S3Store
from support.environment import environment_without
from support.fake_slurm import FakeSlurm
from support.s3.access import new_url, store_at
from support.s3.server import Server
from support.waiting import until

PATIENCE = 40.0


class JobBench:
    """One lineage on a root of its own, and the wrappers that a test starts on it."""

    lineage = "digits"

    def __init__(self, folder: Path, compiled: Path) -> None:
        self.folder = folder
        self.compiled = compiled
        self.root = folder / "root" / self.lineage
        # Never the same twice: a guardian kills whoever carries its attempt, and tests run side by side.
        self.tokens: defaultdict[int, str] = defaultdict(new_token)
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def lineage_root(self) -> LineageRoot:
        return LineageRoot(PosixStore(self.root))

    def attempt(self, number: int = 1) -> str:
        return self.submission(number).attempt(0)

    def submission(self, number: int = 1, saves: dict[str, Any] | None = None, **changes: Any) -> Submission:
        submission = Submission(
            lineage=self.lineage,
            record="",
            generation=0,
            submission=number,
            token=self.tokens[number],
            root=str(self.folder / "root"),
            choice=ResumeChoice(),
            saves=Saves.decode(saves or {"kind": "marker"}),
            identity={},
            notice=Notice("TERM", timedelta(seconds=10)),
            restart_source=RestartSource.ENVIRONMENT,
            watch_interval=timedelta(seconds=0.1),
        )
        return replace(submission, **changes)

    def document(self, number: int = 1, **changes: Any) -> Path:
        path = self.folder / f"submission-{number}.json"
        path.write_bytes(self.submission(number, **changes).encode())
        return path

    def environment(self, **variables: str | None) -> dict[str, str]:
        inherited = environment_without("DISPATCH_", "SLURM_")
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # Compiling everything anew takes most of a short run.
        given = {"DISPATCH_RESTART": "0", "PYTHONPYCACHEPREFIX": str(self.compiled), **variables}
        return {**inherited, **{name: value for name, value in given.items() if value is not None}}

    def start(
        self, *command: str, number: int = 1, variables: dict[str, str | None] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a wrapper; what Popen takes may be given, the rest changes the submission."""
        pipes = {name: options.pop(name) for name in ("stdout", "stderr", "stdin") if name in options}
        document = self.document(number, **options)
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect_dispatch.job", "run", "--submission", str(document), "--", *command],
            env=self.environment(**(variables or {})),
            cwd=self.folder,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes},
        )
        self.started.append(process)
        return process

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a wrapper to its end."""
        return finish(self.start(*command, **options))

    def python(self, program: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a wrapper around a Python program to its end."""
        return self.run(sys.executable, "-c", program, **options)

    def command(self, *arguments: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
        """Run another command of ``dispatch-job``, outside of any execution."""
        return subprocess.run(
            [sys.executable, "-m", "prefect_dispatch.job", *arguments],
            env=self.environment(**variables),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def exec_folder(self, number: int = 1) -> Path:
        return self.root / "exec" / self.attempt(number)

    @property
    def prepared(self) -> bool:
        """Whether a wrapper has made the root whole; until then what is not there may not be made yet."""
        return (self.root / FORMAT_DOCUMENT).exists()

    def publications(self) -> list[Publication]:
        return self.lineage_root.publications()

    def steps(self) -> list[int]:
        return [publication.step for publication in self.publications()]

    def journal(self, kind: str, number: int = 1) -> list[dict[str, Any]]:
        entries = self.lineage_root.journal(self.attempt(number)).entries()
        chosen = [dict(entry.fields) for entry in entries if entry.kind == kind]
        times = [fields.pop("at") for fields in chosen if kind != "barred"]
        assert times == sorted(times) and all(abs(time.time() - at) < 600 for at in times)
        return chosen

    def exit_note(self, number: int = 1) -> ExitNote:
        (fields,) = self.journal("exit", number)
        return ExitNote.of_fields(fields, "the exit entry")

    def pid(self, name: str) -> int:
        """The process id that a program wrote into a file of this name in the bench's folder."""
        path = self.folder / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
        return int(path.read_text())

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


class BucketBench(JobBench):
    """The same with its root in a bucket, and a workplace in the test's own folder."""

    def __init__(self, folder: Path, compiled: Path, server: Server) -> None:
        super().__init__(folder, compiled)
        self.server = server
        self.url = new_url(server, "jobs")
        self.workplaces = folder / "workplaces"

    @property
    def store(self) -> S3Store:
        return store_at(self.server, f"{self.url}/{self.lineage}")

    @property
    def lineage_root(self) -> LineageRoot:
        return LineageRoot(self.store)

    def submission(self, number: int = 1, saves: dict[str, Any] | None = None, **changes: Any) -> Submission:
        return super().submission(number, saves, **{"root": self.url, **changes})

    def environment(self, **variables: str | None) -> dict[str, str]:
        own: dict[str, str | None] = {**self.server.environment(), "DISPATCH_WORKPLACE": str(self.workplaces)}
        inherited = super().environment(**{**own, **variables})
        return {name: value for name, value in inherited.items() if name in variables or name not in ("AWS_PROFILE",)}

    def workplace(self, number: int = 1) -> Path:
        return self.workplaces / f"dispatch-{self.lineage}-{self.attempt(number)}"

    def exec_folder(self, number: int = 1) -> Path:
        return self.workplace(number) / "exec" / self.attempt(number)


def finish(process: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[bytes]:
    output, errors = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def job(tmp_path: Path, compiled: Path) -> Iterator[JobBench]:
    bench = JobBench(tmp_path, compiled)
    yield bench
    bench.close()


@pytest.fixture
def bucket_job(tmp_path: Path, compiled: Path, s3_server: Server) -> Iterator[BucketBench]:
    bench = BucketBench(tmp_path, compiled, s3_server)
    yield bench
    bench.close()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any]], None]:
    return until


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture
def end() -> Callable[[subprocess.Popen[bytes]], subprocess.CompletedProcess[bytes]]:
    return finish


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Commands of Slurm that say and do what a test tells them, first on the PATH."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return FakeSlurm(folder)
