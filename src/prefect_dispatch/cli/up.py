"""``prefect-dispatch up``: jobs from Prefect's UI, with everything that this takes, by one command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType

from prefect_dispatch.cli.down import clear_up
from prefect_dispatch.cli.output import say_now as say
from prefect_dispatch.cli.standing_up import Known, StandingUp, children_of, end, forget_standing, only_one
from prefect_dispatch.cli.temporary_server import LOOPBACK, await_server, start_prefect, start_server, url_of
from prefect_dispatch.errors import DispatchError, StoreUnreachable, UsageError
from prefect_dispatch.settings import state_folder
from prefect_dispatch.supervisor.places import absolute_root

PORT = 4200
"""Prefect's own."""
QUERY_SECONDS = 3
"""How often the worker asks for runs: a person who has pressed a button waits for it."""
FLOW_SECONDS = 15.0
"""How long processes of flows may take to end; they tell the server."""
WORKER_SECONDS = 15.0
SERVER_SECONDS = 15.0
LOOK_SECONDS = 1.0
STEADY_SECONDS = 60.0
"""What ends sooner has failed."""
MOST_FAILURES = 3
DEAD_FOR = timedelta(minutes=2)
"""How long a poller's run must have been under way to be taken for dead, on a server where others may serve too."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WORKER_LOG = "prefect-worker-{}.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--port", type=int, help=f"the port of the Prefect server, where none is configured (default: {PORT})"
    )
    parser.add_argument(
        "--store",
        metavar="PATH",
        help="where saves and records go: root of the block checkpoint-store/default if it has to be made "
        "(default: $DISPATCH_STORE, else a folder of the user's)",
    )
    parser.add_argument(
        "--notify", metavar="TYPE/NAME", help="a Prefect notification block by which you are told when a job is held"
    )


class _Ended(KeyboardInterrupt):
    """A signal that asks for the end. An event loop lets no other exception through to whoever runs it."""


def run(options: argparse.Namespace) -> int:
    """Run the command, until a signal ends it."""
    port = options.port if options.port is not None else PORT
    if not 0 < port < 65536:
        raise UsageError(f"--port {port} is no port; give one from 1 to 65535")
    with only_one(), _ending_by_signals():
        clear_up()
        serving = _Serving(port)
        try:
            serving.begin(options)
            serving.stay()
        except _Ended:
            say("ending; jobs that were submitted go on…")
        finally:
            serving.finish()
    say("up has ended; prefect-dispatch up takes up again what goes on")
    return 0


@dataclass
class _Child:
    """A process of ours, and how to start it again."""

    what: str
    start: Callable[[], tuple[subprocess.Popen[bytes], Path]]

    def begin(self) -> None:
        self.began = time.monotonic()
        self.process, self.log = self.start()
        self.known = Known.of(self.process.pid)

    failures: int = 0
    began: float = 0.0
    process: subprocess.Popen[bytes] = field(init=False)
    log: Path = field(init=False)
    known: Known | None = None


class _Serving:
    """What an ``up`` has started.

    Args:
        port: where its own server would be.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._url = ""
        self._server: _Child | None = None
        self._workers: list[_Child] = []
        self._needed = contextlib.ExitStack()

    def begin(self, options: argparse.Namespace) -> None:
        """Serve everything.

        Raises:
            UsageError: what was asked for cannot be; the text says what to do.
            StoreUnreachable: the server that Prefect is configured for does not answer, or ours does not start.
        """
        from prefect.settings import PREFECT_API_URL, temporary_settings

        configured = PREFECT_API_URL.value()
        if configured and options.port is not None:
            raise UsageError(
                f"--port {options.port} is for a server of up's own, and Prefect is configured for {configured}; "
                "leave --port out, or unset PREFECT_API_URL"
            )
        self._url = configured or url_of(self._port)
        self._tell(own_server=not configured)
        if not configured:
            self._begin_server()
        self._needed.enter_context(temporary_settings({PREFECT_API_URL: self._url}))
        store, pools = asyncio.run(_serve(options, self._url, Path.cwd(), not configured))
        for pool in pools:
            worker = _Child(f"the worker of pool {pool}", partial(_start_worker, pool, self._url))
            self._workers.append(worker)
            worker.begin()
        self._tell(ready=True)
        say(f"saves and records go to {store} (the block checkpoint-store/default); logs are in {state_folder()}")
        ui = self._url.removesuffix("/api")
        say(f"up: start, watch and answer jobs at {ui} ; Ctrl-C ends this, and jobs go on")

    def stay(self) -> None:
        """Keep what runs running, until a signal comes.

        Raises:
            DispatchError: one of the processes ends again and again.
        """
        while True:
            time.sleep(LOOK_SECONDS)
            for child in self._children():
                code = child.process.poll()
                if code is None:
                    continue
                child.failures = child.failures + 1 if time.monotonic() - child.began < STEADY_SECONDS else 1
                if child.failures > MOST_FAILURES:
                    raise DispatchError(f"{child.what} has ended {child.failures} times in a row; see {child.log}")
                say(f"{child.what} has ended with exit code {code}, see {child.log}; it is started again")
                child.begin()
                self._tell(ready=True)

    def finish(self) -> None:
        """End all of it: workers and their flows while the server can still be told, then the server.

        Jobs are none of these: whoever runs them has them in sessions of their own.
        """
        self._needed.close()
        workers = [each.known for each in self._workers if each.known is not None]
        for worker in workers:
            # It takes no more runs now, and would wait for those that it has until they are over.
            worker.send(signal.SIGTERM)
        killed: list[Known] = []
        while flows := [flow for worker in workers for flow in children_of(worker.pid)]:
            killed += end(flows, FLOW_SECONDS)
        killed += end(workers, WORKER_SECONDS)
        if self._server is not None and self._server.known is not None:
            killed += end([self._server.known], SERVER_SECONDS)
        for child in self._children():
            child.process.wait()
        if killed:
            say(f"{len(killed)} processes did not end when they were asked to, and were killed")
        forget_standing()

    def _begin_server(self) -> None:
        _require_free(self._port)
        say("starting a Prefect server; that can take a minute…")
        self._server = _Child("the Prefect server", partial(start_server, self._port))
        self._server.begin()
        self._tell()
        await_server(self._server.process, self._url, str(self._server.log))

    def _children(self) -> list[_Child]:
        return [*self._workers, *([self._server] if self._server is not None else [])]

    def _tell(self, own_server: bool | None = None, ready: bool = False) -> None:
        own = Known.of(os.getpid())
        assert own is not None
        own_server = self._server is not None if own_server is None else own_server
        children = tuple(each.known for each in self._children() if each.known is not None)
        StandingUp(up=own, url=self._url, own_server=own_server, children=children, ready=ready).write()


def _require_free(port: int) -> None:
    """Refuse a port that somebody listens on."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, port))
        except OSError as error:
            raise UsageError(
                f"port {port} of {LOOPBACK} cannot be used: {error.strerror}; give another --port, or, if a Prefect "
                f"server runs there, set PREFECT_API_URL={url_of(port)}"
            ) from None


def _start_worker(pool: str, url: str) -> tuple[subprocess.Popen[bytes], Path]:
    words = ("worker", "start", "--pool", pool, "--install-policy", "never", "--name", f"up-{socket.gethostname()}")
    query = os.environ.get("PREFECT_WORKER_QUERY_SECONDS", str(QUERY_SECONDS))
    return start_prefect(WORKER_LOG.format(pool), *words, PREFECT_API_URL=url, PREFECT_WORKER_QUERY_SECONDS=query)


async def _serve(options: argparse.Namespace, url: str, folder: Path, alone: bool) -> tuple[str, tuple[str, ...]]:
    """Tell the server of all that is served. Returns where saves and records go, and the pools to start workers for."""
    from prefect.client.orchestration import get_client

    from prefect_dispatch.flows import deploying

    named = options.store is not None
    store = absolute_root(options.store or os.environ.get("DISPATCH_STORE") or str(state_folder() / "runs"), folder)
    async with get_client() as client:
        trouble = await client.api_healthcheck()
        if trouble is not None:
            raise StoreUnreachable(
                f"the Prefect server {url} does not answer ({type(trouble).__name__}: {trouble}); start it, or unset "
                "PREFECT_API_URL (in the profile too: prefect config unset PREFECT_API_URL) to have up start one"
            )
        root = await deploying.make_blocks(store, named)
        served = await deploying.serve_deployments(client, folder)
        told = await deploying.make_automation(client, options.notify)
        await deploying.forget_missed(client, served.pollers)
        # On a server of our own nobody else runs what is deployed, so what seems to run has died with the last up.
        dead = list(served.deployments.values()) if alone else served.pollers
        await deploying.release_runs(client, dead, timedelta(0) if alone else DEAD_FOR)
        await deploying.start_reconcile(client, served)
    for note in served.notes:
        say(note)
    say(f"deployments: {', '.join(served.deployments)}")
    if not told:
        say("nobody is told when a job is held: name a notification block with --notify, or switch the automation on")
    return root, served.pools


@contextlib.contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Have the signals that ask for an end raise; SIGINT too, which a shell has its background processes ignore."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise _Ended

    before = {number: signal.signal(number, stop) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
