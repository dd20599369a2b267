"""Flow ``supervise`` as a deployment with a real worker, and a person who answers in the API as the UI does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.deployments.runner import EntrypointType
from prefect.exceptions import ObjectAlreadyExists

from prefect_dispatch.flows.supersede import supersede
from prefect_dispatch.flows.supervise import supervise
from support.tied import tied

T = TypeVar("T")
PATIENCE = 180.0
POOL = "held-jobs"
DEPLOYMENT = "held"
_POLL = "poll_cessation(stores=sys.argv[1:], return_state=True)"

# Saves once, and says by its exit code whether the person's word has reached it.
PROGRAM = """
import os, pathlib, sys
source = os.environ["DISPATCH_RESUME_FROM"]
step = int((pathlib.Path(source) / "count").read_text()) if source else 0
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
for _ in range(2):
    step += 1
    save = folder / f"step-{step}"
    save.mkdir()
    (save / "count").write_text(str(step))
    (save / ".complete").write_text(str(step))
sys.exit(0 if os.path.exists("go") else 7)
"""


# Saves when it is asked to end, says what it resumed from, and otherwise works until it is let go.
WORKING = """
import os, pathlib, signal, sys, time
source, folder = os.environ["DISPATCH_RESUME_FROM"], pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
step = int(pathlib.Path(source, ".complete").read_text()) if source else 0
def save(*_):
    (folder / "save").mkdir()
    (folder / "save" / ".complete").write_text(str(step + 7))
    time.sleep(0.5)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path(f"begun-{step}").touch()
while not os.path.exists("go"):
    time.sleep(0.05)
"""

# The same, but a first one works until it is taken away.
WAITS = PROGRAM.replace(
    "sys.exit(0 if", "import time\nopen('begun-1', 'w').close()\ntime.sleep(0 if source else 300)\nsys.exit(0 if"
)


class Worker:
    """A worker of its own process group; the flow processes that it starts are in it."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self._home / "worker.log").read_text(errors="replace")

    def start(self) -> None:
        prefect = (sys.executable, "-m", "prefect")
        with (self._home / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                tied(*prefect, "worker", "start", "--pool", POOL, "--install-policy", "never"),
                cwd=self._home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the worker alone, as a machine's out-of-memory killer does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self._process.pid, number)
                except ProcessLookupError:
                    break
                try:
                    self._process.wait(15)
                except subprocess.TimeoutExpired:
                    continue


async def deploy() -> None:
    """Make the work pool and the deployment. The entry point is the module's: a worker has no files of ours."""
    async with get_client() as client:
        try:
            await client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        except ObjectAlreadyExists:
            pass
    for flow in (supervise, supersede):
        deployment: Any = await flow.ato_deployment(
            DEPLOYMENT, work_pool_name=POOL, entrypoint_type=EntrypointType.MODULE_PATH
        )
        await deployment.aapply()


class Deployed:
    """One bench's jobs as runs of the deployment, and the person who looks at them.

    Args:
        operator: the bench.
    """

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        self._api = httpx.Client(base_url=operator.api, timeout=60)

    def start(self, program: str = PROGRAM, variables: dict[str, str] | None = None, **fields: Any) -> str:
        """Start a run for the bench's job, from nothing but parameters. Returns its id.

        ``variables`` are those of its process, beside the worker's own.
        """
        return self._create("supervise", variables, job=self._job(program, fields))

    def supersede(self, resume: str | None = None, program: str = PROGRAM, **fields: Any) -> str:
        """Start a run that supersedes the bench's job. Returns its id."""
        lineage, job = self._operator.lineage, self._job(program, fields)
        return self._create("supersede", lineage=lineage, job=job, resume=resume)

    def _job(self, program: str, fields: dict[str, Any]) -> dict[str, Any]:
        operator = self._operator
        (operator.folder / "program.py").write_text(program)
        return {
            "lineage": operator.lineage,
            "command": ["python", "program.py"],
            "workdir": str(operator.folder),
            "store": {"root": operator.root},
            "workplace": str(operator.folder / "workplaces"),
            "scheduler": {"type": "local", "state_folder": str(operator.folder / "state"), "linger": "60s"},
            "saves": {"kind": "marker"},
            "watch_interval": "100ms",
            "recovery": {"failed": {"action": "hold"}},
            **fields,
        }

    def _create(self, flow: str, variables: dict[str, str] | None = None, **parameters: Any) -> str:
        deployment = self.ask("GET", f"/deployments/name/{flow}/{DEPLOYMENT}")["id"]
        body = {"parameters": parameters, "job_variables": {"env": variables} if variables else {}}
        return str(self.ask("POST", f"/deployments/{deployment}/create_flow_run", **body)["id"])

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Ask the API, and ask again where SQLite was locked, as it is now and then while several runs go on."""
        for _ in range(10):
            answer = self._api.request(method, path, json=body if method == "POST" else None)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(0.5)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def run(self, id: str) -> FlowRun:
        return FlowRun.model_validate(self.ask("GET", f"/flow_runs/{id}"))

    def reaches(self, id: str, *names: str) -> FlowRun:
        """Wait until a run is in a state of one of these names."""

        def look() -> FlowRun | None:
            run = self.run(id)
            return run if run.state is not None and run.state.name in names else None

        return patiently(look, f"flow run {id} is {' or '.join(names)}")

    def held(self, id: str) -> FlowRun:
        """Wait until a run can be answered: suspended, and its form there."""
        self.reaches(id, "Suspended", "Paused")
        patiently(lambda: self.read_input(id, "schema"), f"the form of flow run {id}")
        return self.run(id)

    def read_input(self, id: str, what: str) -> Any:
        """What is stored for the pause that a run is in; None for nothing."""
        state = self.run(id).state
        assert state is not None and state.state_details.run_input_keyset is not None
        answer = self._api.get(f"/flow_runs/{id}/input/{state.state_details.run_input_keyset[what]}")
        return answer.json() if answer.status_code == 200 else None

    def resume(self, id: str, values: Any = None) -> tuple[str, str]:
        """Resume a run as the UI does. Returns Prefect's word, and its reason.

        Of two at the same moment PostgreSQL lets one through and has the other refused as a conflict.
        """
        try:
            answer = self.ask("POST", f"/flow_runs/{id}/resume", run_input=values)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            return "CONFLICT", error.response.text
        return answer["status"], str(answer["details"].get("reason"))

    def cancel(self, id: str) -> None:
        """Cancel a run as the UI does."""
        self.ask("POST", f"/flow_runs/{id}/set_state", state={"type": "CANCELLING", "name": "Cancelling"})

    def suspend(self, id: str) -> None:
        """Suspend a run as the UI does."""
        details = {"pause_timeout": (datetime.now(UTC) + timedelta(hours=1)).isoformat(), "pause_reschedule": True}
        suspended = {"type": "PAUSED", "name": "Suspended", "state_details": details}
        assert self.ask("POST", f"/flow_runs/{id}/set_state", state=suspended)["status"] == "ACCEPT"

    def log(self, id: str) -> str:
        """The log of a run."""
        chosen = {"flow_run_id": {"any_": [id]}}
        return "\n".join(each["message"] for each in self.ask("POST", "/logs/filter", logs=chosen))

    def events(self, lineage: str) -> list[str]:
        """What Prefect was told of a lineage, in order."""
        chosen = {"resource": {"id": [f"prefect-dispatch.lineage.{lineage}"]}, "order": "ASC"}
        found = self.ask("POST", "/events/filter", filter=chosen, limit=50)["events"]
        return [each["event"].removeprefix("prefect-dispatch.") for each in found]

    def close(self) -> None:
        self._api.close()


def poll(operator: Any, *stores: str, ask: str | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """One poll in a process of its own, as the deployment starts one; with a block's signal in place of each own."""
    call = _POLL if ask is None else _POLL.replace("return_state", f"signal={ask!r}, return_state")
    return _look_once(call, operator, stores, changes)


def start_poll(operator: Any, **changes: str) -> subprocess.Popen[str]:
    """Start such a process, and do not wait for its end."""
    return subprocess.Popen(
        _looking(_POLL, operator, ()),
        cwd=operator.folder,
        env=operator.environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reconcile(operator: Any, *stores: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """One run of ``reconcile`` in a process of its own, as the deployment starts one."""
    call = f"reconcile(stores=sys.argv[1:], deployment='supervise/{DEPLOYMENT}', return_state=True)"
    return _look_once(call, operator, stores, changes)


def _looking(call: str, operator: Any, stores: tuple[str, ...]) -> list[str]:
    text = (
        "import asyncio, sys\n"
        "from prefect_dispatch.flows import poll_cessation, reconcile\n"
        f"print(asyncio.run({call}).message)\n"
    )
    return [sys.executable, "-c", text, *(stores or [operator.root])]


def _look_once(
    call: str, operator: Any, stores: tuple[str, ...], changes: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _looking(call, operator, stores),
        cwd=operator.folder,
        env=operator.environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
    )


def processes_of(run: str) -> list[int]:
    """The processes of a run's flow. Its job, which lives on without them, has their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                engine = re.search(rb"prefect\.\w*engine", (entry / "cmdline").read_bytes())
                if engine and run.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def patiently(condition: Callable[[], T], what: str) -> T:
    """Wait for what Prefect, its worker and their processes do: seconds, so four looks in each are enough."""
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.25)
    return found
