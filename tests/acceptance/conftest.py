"""A real Prefect server, and a bench for jobs that are driven from the command line in separate processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.model.state import LineageState, SubmissionState
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.stores.s3_accesses import use_access
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_lineage_root, open_record
from prefect_dispatch.supervisor.record import Record
from support import postgresql, waiting
from support.deployed import Deployed, Worker, deploy
from support.environment import environment_without
from support.s3.access import access_to, new_url
from support.s3.server import Server
from support.tied import tied

PATIENCE = 120.0
_LEFT_OPEN = r"ignore:Exception ignored in. <(function _SelectorTransport|socket\.socket):"
"""A connection of Prefect's own client that a test's event loop has left to the garbage collector says so, later, in
whatever test runs then: as happens when the server is killed or slow. It is not this project's to close."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test fail for a connection that another one's client has left behind."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(f"{_LEFT_OPEN}pytest.PytestUnraisableExceptionWarning"))


STORE = "DISPATCH_TESTS_STORE"
"""``bucket`` to have all acceptance tests on a bucket of a real S3 server; ``folder`` is the default."""
DATABASE = "DISPATCH_TESTS_DATABASE"
"""``postgresql`` to have all Prefect servers of these tests on a real PostgreSQL; ``sqlite`` is the default."""


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition, as long as Prefect may take."""
    return waiting.until(condition, patience_seconds=PATIENCE)


def clean_environment(**changes: str) -> dict[str, str]:
    return {**environment_without("DISPATCH_", "PREFECT_"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", **changes}


class PrefectServer:
    """A Prefect server of the tests' own on a free port of the loopback. It can be killed, and started again.

    Args:
        home: where its files are.
        database: the URL of its database; empty for a file of SQLite in its home.
    """

    def __init__(self, home: Path, database: str = "") -> None:
        self._home = home
        self._own = {"PREFECT_API_DATABASE_CONNECTION_URL": database} if database else {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/api"

    def start(self) -> None:
        prefect = (sys.executable, "-m", "prefect")
        with (self._home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                tied(*prefect, "server", "start", "--host", "127.0.0.1", "--port", str(self._port)),
                env=clean_environment(PREFECT_HOME=str(self._home), PREFECT_UI_API_URL=self.url, **self._own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._healthy)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def _healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._home / "server.log").read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture(scope="session")
def database() -> Iterator[postgresql.PostgreSQL]:
    """A PostgreSQL of this session's own; it starts with the first test that asks for it."""
    reason = postgresql.why_not()
    if reason:
        pytest.skip(reason)
    with postgresql.serve() as database:
        yield database


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes an empty database for a server where the environment says so; else each has a file of its own."""
    kind = os.environ.get(DATABASE) or "sqlite"
    assert kind in ("sqlite", "postgresql"), f"{DATABASE} is {kind!r}; set it to sqlite or postgresql"
    if kind == "sqlite":
        return lambda: ""
    assert not postgresql.why_not(), postgresql.why_not()
    database: postgresql.PostgreSQL = request.getfixturevalue("database")
    return database.create


@pytest.fixture(scope="session")
def prefect_server(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]
) -> Iterator[PrefectServer]:
    """The server of all tests; it is running."""
    server = PrefectServer(tmp_path_factory.mktemp("prefect"), new_database())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def another_server(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[PrefectServer]:
    """A server with a database of its own, which is empty."""
    home = tmp_path / "another-server"
    home.mkdir()
    server = PrefectServer(home, new_database())
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def prefect_api(prefect_server: PrefectServer) -> str:
    """The API of that server."""
    return prefect_server.url


class Operator:
    """A person with a terminal: one store, one job file at a time, commands as processes of their own."""

    lineage = "digits"

    def __init__(self, folder: Path, api: str, server: Server | None = None) -> None:
        self.folder = folder
        self.api = api
        self.server = server
        self.runs = folder / "runs"
        self.root = str(self.runs)
        if server is not None:
            self.root = new_url(server, "runs")
            use_access(self.root, access_to(server))
        self.job_file = folder / "job.yaml"
        self.started: list[subprocess.Popen[bytes]] = []
        self.scheduler = LocalScheduler(folder / "state", 1, timedelta(seconds=60))

    def environment(self, **changes: str) -> dict[str, str]:
        own = {"PREFECT_API_URL": self.api, "PREFECT_HOME": str(self.folder / "home"), "DISPATCH_STORE": self.root}
        if self.server is not None:
            own.update(self.server.environment())
        return clean_environment(**{**own, "DISPATCH_STATE": str(self.folder / "own-state"), **changes})

    def write_job(self, program: str, **fields: Any) -> Path:
        """A job whose program is a Python text. It finds the bench's folder as its working folder."""
        (self.folder / "program.py").write_text(program)
        spec = {
            "lineage": self.lineage,
            "command": ["python", "program.py"],
            "store": {"root": "runs" if self.server is None else self.root},
            "workplace": "workplaces",
            "scheduler": {"type": "local", "state_folder": "state", "linger": "60s"},
            "saves": {"kind": "marker"},
            "watch_interval": "100ms",
            **fields,
        }
        self.job_file.write_text(yaml.safe_dump(spec))
        return self.job_file

    def start(self, *words: str, cwd: str | None = None, **changes: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect_dispatch.cli", *words],
            cwd=cwd or self.folder,
            env=self.environment(**changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.finish(self.start(*words, **changes))

    def finish(self, process: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[str]:
        output, errors = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output.decode(), errors.decode())

    def submit(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run("submit", str(self.job_file), "--wait", *words, **changes)

    def is_there(self) -> bool:
        """Whether there may be a record."""
        return self.server is not None or self.runs.exists()

    def record(self) -> Record:
        return open_record(self.root, self.lineage, SystemClock())

    def state(self) -> LineageState:
        return self.record().refresh()

    def facts(self, kind: str) -> list[Any]:
        return [entry.fact for entry in self.record().entries() if entry.fact.kind == kind]

    def running(self, n: int) -> SubmissionState:
        """Wait until a submission's program has begun."""

        def look() -> SubmissionState | None:
            newest = self.state().newest if self.is_there() else None
            gone = [process for process in self.started if process.poll() is not None]
            assert len(gone) < len(self.started), [self.finish(process) for process in gone]
            begun = newest is not None and newest.n == n and newest.newest is not None and newest.newest.seen_running
            return newest if begun and (self.folder / f"begun-{n}").exists() else None

        return until(look)

    def saved(self, n: int) -> SubmissionState:
        """Wait until a submission has begun and a save of it is published, which takes longer in a bucket."""
        running = self.running(n)
        root = open_lineage_root(self.root, self.lineage)
        until(lambda: any(each.epoch.submission == n for each in root.publications()))
        return running

    def publications(self) -> list[Publication]:
        """The saves that are published, in order."""
        return open_lineage_root(self.root, self.lineage).publications()

    def preempt(self, submission: SubmissionState) -> None:
        assert submission.object is not None
        assert asyncio.run(self.scheduler.preempt(submission.object))

    def release(self) -> None:
        """Let the programs go on to their end."""
        (self.folder / "go").touch()

    def objects(self) -> list[ObjectRef]:
        state = self.state()
        return [each.object for each in (*state.obligations, *state.submissions) if each.object is not None]

    def flow_runs(self) -> list[FlowRun]:
        async def ask() -> list[FlowRun]:
            async with get_client() as client:
                tags = FlowRunFilterTags(all_=[f"lineage:{self.lineage}", f"bench:{self.folder.name}"])
                return await client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=tags))

        return self.ask(ask)

    def flow_run(self, id: str) -> FlowRun:
        async def ask() -> FlowRun:
            async with get_client() as client:
                return await client.read_flow_run(id)

        return self.ask(ask)

    def task_runs(self, flow_run_id: str) -> list[TaskRun]:
        async def ask() -> list[TaskRun]:
            from prefect.client.schemas.filters import FlowRunFilterId

            async with get_client() as client:
                run = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
                return await client.read_task_runs(flow_run_filter=run)

        return self.ask(ask)

    def logs(self, flow_run_id: str) -> list[str]:
        """What a flow run and its tasks have logged."""

        async def ask() -> list[str]:
            from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

            async with get_client() as client:
                chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[UUID(flow_run_id)]))
                return [log.message for log in await client.read_logs(log_filter=chosen)]

        logged: list[str] = self.ask(ask)
        return logged

    def artifacts(self, flow_run_id: str) -> dict[str, list[Any]]:
        """The artifacts of a flow run by key, oldest first."""

        async def ask() -> dict[str, list[Any]]:
            from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

            async with get_client() as client:
                chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
                found: dict[str, list[Any]] = {}
                for artifact in await client.read_artifacts(artifact_filter=chosen):
                    found.setdefault(artifact.key or "", []).append(artifact)
                for versions in found.values():
                    versions.sort(key=lambda artifact: artifact.created)
                return found

        return self.ask(ask)

    def ask(self, question: Callable[[], Any]) -> Any:
        with temporary_settings({PREFECT_API_URL: self.api}):
            return asyncio.run(question())

    def delete_flow_run(self, id: str) -> None:
        async def ask() -> None:
            async with get_client() as client:
                await client.delete_flow_run(id)

        self.ask(ask)

    def carriers(self) -> list[str]:
        """The flow runs that carried the lineage, in order."""
        return [fact.flow_run for fact in self.facts("carried_by")]

    def carriers_if_any(self) -> list[str]:
        """The same, also before there is a record."""
        return self.carriers() if self.is_there() else []

    def close(self) -> None:
        self.release()
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if self.is_there():
            for reference in self.objects() if self.record().refresh().opened else []:
                asyncio.run(self.scheduler.stop(reference, None))
                until(lambda reference=reference: not self.scheduler.processes(reference))


@pytest.fixture(scope="session")
def store_server(request: pytest.FixtureRequest) -> Server | None:
    """The server of the bucket that all benches are on where the environment says so."""
    kind = os.environ.get(STORE) or "folder"
    assert kind in ("folder", "bucket"), f"{STORE} is {kind!r}; set it to folder or bucket"
    return request.getfixturevalue("s3_server") if kind == "bucket" else None


@pytest.fixture
def operator(
    request: pytest.FixtureRequest, tmp_path: Path, prefect_api: str, store_server: Server | None
) -> Iterator[Operator]:
    """One on a folder; or on a bucket, for whoever asks for that one and for all where the environment says so."""
    kind = getattr(request, "param", None)
    server = store_server if kind is None else request.getfixturevalue("s3_server") if kind == "bucket" else None
    bench = Operator(tmp_path, prefect_api, server)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def worker(prefect_api: str, tmp_path_factory: pytest.TempPathFactory, store_server: Server | None) -> Iterator[Worker]:
    """One worker for all held jobs, and the deployment that it serves."""
    home = tmp_path_factory.mktemp("worker")
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        asyncio.run(deploy())
    own = {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": str(home), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    if store_server is not None:
        own.update(store_server.environment())
    running = Worker(home, clean_environment(**own, DISPATCH_STATE=str(home / "own-state")))
    running.start()
    yield running
    running.close()


@pytest.fixture
def deployed(operator: Operator, worker: Worker) -> Iterator[Deployed]:
    looker = Deployed(operator)
    yield looker
    looker.close()


@pytest.fixture
def another(
    tmp_path: Path, prefect_api: str, worker: Worker, store_server: Server | None
) -> Iterator[Callable[[str], tuple[Operator, Deployed]]]:
    """More benches, each with a folder and a lineage of its own, so that their runs start at the same time."""
    benches: list[tuple[Operator, Deployed]] = []

    def make(name: str) -> tuple[Operator, Deployed]:
        folder = tmp_path / name
        folder.mkdir()
        bench = Operator(folder, prefect_api, store_server)
        bench.lineage = name
        benches.append((bench, Deployed(bench)))
        return benches[-1]

    yield make
    for bench, looker in benches:
        looker.close()
        bench.close()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any]], Any]:
    return until


@pytest.fixture
def json_of() -> Callable[[str], Any]:
    return json.loads


@pytest.fixture
def environment() -> Callable[..., dict[str, str]]:
    return clean_environment
