"""``up`` and ``down`` where nothing is configured: what is served, what is left after the end, and what goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from prefect_dispatch.model.state import LineageState
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from support import waiting
from support.deployed import patiently

WORKING = """
import os, pathlib, time
pathlib.Path(os.environ["DISPATCH_LINEAGE"] + ".pid").write_text(str(os.getpid()))
while not os.path.exists("go"):
    time.sleep(0.1)
"""
FAILING = "import os, sys; sys.exit(0 if os.path.exists('go') else 7)"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Site:
    """A machine on which somebody has installed this package, and nothing is configured."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = environment
        self._ups: list[subprocess.Popen[bytes]] = []

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def command(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "prefect_dispatch.cli", *words],
            cwd=self.folder,
            env={**self.environment, **changes},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def up(self, *words: str) -> subprocess.Popen[bytes]:
        """Start it, and wait until it serves."""
        told = self.folder / f"up-{len(self._ups)}.out"
        with told.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect_dispatch.cli", "up", "--port", str(self.port), *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._ups.append(process)

        def look() -> bool:
            assert process.poll() is None, told.read_text()
            return f"answer jobs at http://127.0.0.1:{self.port}" in told.read_text()

        waiting.until(look, "up", patience_seconds=300)
        return process

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Ask the API, and ask again where SQLite was locked."""
        for _ in range(10):
            answer = httpx.request(method, f"{self.api}{path}", json=body or None, timeout=60)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(0.5)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def start(self, lineage: str, program: str) -> str:
        """Start a run from little more than what the form has no default for. Returns its id."""
        (self.folder / f"{lineage}.py").write_text(program)
        recovery = {"failed": {"action": "hold"}}
        job: dict[str, Any] = {"lineage": lineage, "command": ["python", f"{lineage}.py"], "recovery": recovery}
        job["scheduler"] = {"type": "local", "slots": 2}
        deployment = self.ask("GET", "/deployments/name/supervise/supervise")["id"]
        return str(self.ask("POST", f"/deployments/{deployment}/create_flow_run", parameters={"job": job})["id"])

    def reaches(self, run: str, *states: str) -> Any:
        def look() -> Any:
            found = self.ask("GET", f"/flow_runs/{run}")
            return found if found["state"]["name"] in states else None

        return patiently(look, f"{run} is {states}")

    def state(self, lineage: str) -> LineageState:
        return open_record(str(self.folder / "runs"), lineage, SystemClock()).refresh()

    def prefect_processes(self) -> list[str]:
        """The command lines of all processes of Prefect that this site's environment tells to be its own."""
        own, found = f"PREFECT_HOME={self.environment['PREFECT_HOME']}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes()
                if b"prefect" in command and b"prefect_dispatch" not in command:
                    found += [command.decode()] if own in (entry / "environ").read_bytes().split(b"\0") else []
            except OSError:
                continue
        return found

    def close(self) -> None:
        (self.folder / "go").touch()
        for process in self._ups:
            if process.poll() is None:
                process.terminate()
                process.wait(90)
        for written in self.folder.glob("*.pid"):
            pid = int(written.read_text())
            patiently(lambda pid=pid: not Path(f"/proc/{pid}/cwd").exists(), "the end of the program")


@pytest.fixture
def site(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Iterator[Site]:
    home = str(tmp_path / "prefect")
    own = environment(PREFECT_HOME=home, DISPATCH_STATE=str(tmp_path / "state"), DISPATCH_STORE=str(tmp_path / "runs"))
    made = Site(tmp_path, own)
    yield made
    made.close()


@pytest.fixture
def messages() -> Iterator[tuple[str, list[Any]]]:
    """Whoever is told when a job is held: the address of a web hook, and what came to it."""
    came: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", came
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.timeout(900)
def test_nothing_is_left_after_the_end_but_what_was_submitted_and_the_next_up_goes_on(site, messages):
    # given everything served on a machine where nothing was configured
    first = site.up()
    taken = site.command("up", "--port", str(site.port), DISPATCH_STATE=str(site.folder / "another"))
    twice = site.command("up")
    assert (taken.returncode, twice.returncode) == (2, 2)
    assert f"port {site.port} of 127.0.0.1 cannot be used" in taken.stderr
    assert f"up runs already as process {first.pid}" in twice.stderr
    nightly = site.ask("GET", "/deployments/name/supervise/nightly")
    assert nightly["parameters"]["job"]["lineage"] == "nightly-{date}"
    assert [each["active"] for each in nightly["schedules"]] == [False]
    # and a job that works, one that is held, both from the form alone, and a schedule that a person has switched off
    site.start("working", WORKING)
    held = site.start("waiting", FAILING)
    patiently(lambda: (site.folder / "working.pid").exists(), "the program")
    site.reaches(held, "Suspended")
    poll = site.ask("GET", "/deployments/name/poll-cessation/poll-cessation")
    (schedule,) = poll["schedules"]
    assert (schedule["schedule"]["interval"], poll["global_concurrency_limit"]["limit"]) == (60, 1)
    site.ask("PATCH", f"/deployments/{poll['id']}/schedules/{schedule['id']}", active=False)
    hook, came = messages
    kind = site.ask("GET", "/block_types/slug/custom-webhook")["id"]
    (schema,) = site.ask("POST", "/block_schemas/filter", block_schemas={"block_type_id": {"any_": [kind]}}, limit=1)
    site.ask(
        "POST",
        "/block_documents/",
        name="ops",
        block_type_id=kind,
        block_schema_id=schema["id"],
        data={"name": "ops", "url": hook, "method": "POST", "json_data": {"text": "{{subject}}: {{body}}"}},
    )
    # when it is ended by Ctrl-C
    first.send_signal(signal.SIGINT)
    assert first.wait(90) == 0, (site.folder / "up-0.out").read_text()
    # then the program lives, and nothing of Prefect does
    program = int((site.folder / "working.pid").read_text())
    assert Path(f"/proc/{program}/cwd").resolve() == site.folder
    assert site.prefect_processes() == []
    # when it is begun again, then the job that works is taken up, as it is
    run = site.state("working").carried_by
    second = site.up("--notify", "custom-webhook/ops")
    poll = site.ask("GET", f"/deployments/{poll['id']}")
    assert [each["active"] for each in poll["schedules"]] == [False]
    assert poll["global_concurrency_limit"]["active_slots"] == 0

    def adopted() -> str | None:
        carrier = site.state("working").carried_by
        return carrier if carrier != run else None

    adopter = patiently(adopted, "a run that takes over")
    assert Path(f"/proc/{program}/cwd").exists()
    # and the held one is still held; each new hold is told
    assert site.reaches(held, "Suspended")["name"] == "waiting: held, failed"
    again = {"choice": "run again"}
    assert site.ask("POST", f"/flow_runs/{held}/resume", run_input=again)["status"] == "ACCEPT"
    patiently(lambda: came, "a message")
    assert came == [{"text": "waiting is held: failed: exit 7"}]
    # and both come to their ends
    (site.folder / "go").touch()
    site.reaches(held, "Suspended")
    assert site.ask("POST", f"/flow_runs/{held}/resume", run_input=again)["status"] == "ACCEPT"
    for each in (adopter, held):
        site.reaches(each, "Completed")
    assert len(site.state("working").submissions) == 1
    # when it is killed, then its own processes end too, and down says so
    second.kill()
    second.wait()
    down, after = site.command("down"), site.command("down")
    assert (down.returncode, after.returncode) == (0, 0)
    assert f"up, process {second.pid}, was killed" in down.stdout
    assert after.stdout == f"no up runs for {site.folder / 'state'}\n"
    patiently(lambda: not site.prefect_processes(), "the end of what was left")


def test_a_server_that_is_configured_and_away_is_one_error(site):
    refused = site.command("up", PREFECT_API_URL="http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES="0")
    port = site.command("up", "--port", "4321", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (refused.returncode, port.returncode) == (69, 2)
    assert "the Prefect server http://127.0.0.1:9/api does not answer" in refused.stderr
    assert "leave --port out, or unset PREFECT_API_URL" in port.stderr
    for each in (refused, port):
        assert each.stderr.count("\n") == 1, each.stderr
    assert site.command("down").stdout.startswith("no up runs")
    assert os.listdir(site.folder / "state") == ["up.lock"]
