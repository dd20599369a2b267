"""A Prefect server for as long as this process lives, where none is configured."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from prefect_dispatch.cli.standing_up import running_up
from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.settings import state_folder

LOOPBACK = "127.0.0.1"
SERVER_LOG = "prefect-server.log"
START_SECONDS = 300.0
"""How long the server may take to come up; on two busy cores with a new database that has taken a minute."""
STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def prefect_api() -> Iterator[str]:
    """Have a Prefect API: the one that is configured, else that of an ``up`` that runs, else a temporary server.

    The temporary server keeps its runs in the user's own Prefect database, has the UI, and ends with this process,
    however that ends. It is in a session of its own, so that Ctrl-C reaches this process alone.

    Returns:
        The API's URL.

    Raises:
        StoreUnreachable: the server did not come up; the text says where its log is.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    configured = PREFECT_API_URL.value()
    if configured:
        yield configured
        return
    standing = running_up()
    if standing is not None and standing.own_server:
        with temporary_settings({PREFECT_API_URL: standing.url}):
            yield standing.url
        return
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    url = url_of(port)
    print("starting a Prefect server for this command; that can take a minute…", file=sys.stderr, flush=True)
    server, log = start_server(port)
    # At exit and not before: what Prefect has still to send then is sent first, since handlers run in reverse order.
    atexit.register(_stop, server)
    await_server(server, url, str(log))
    with temporary_settings({PREFECT_API_URL: url}):
        yield url


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def url_of(port: int) -> str:
    """The API of a server on a port of the loopback."""
    return f"http://{LOOPBACK}:{port}/api"


def start_server(port: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a Prefect server with the user's own database. Returns it, and the file that it writes to.

    It ends with this process. To be started by the main thread: the kernel looks at the thread.
    """
    words = ("server", "start", "--host", LOOPBACK, "--port", str(port))
    (state_folder() / SERVER_LOG).unlink(missing_ok=True)
    return start_prefect(SERVER_LOG, *words, PREFECT_UI_API_URL=url_of(port))


def start_prefect(log: str, *words: str, **variables: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start one of Prefect's commands beside this process, as above.

    Args:
        log: the name of the file that it writes to, in the user's state folder.
        words: the command's.
        variables: what its environment has beside this process's own.
    """
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / log).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "prefect", *words],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    return process, folder / log


def _end_with_parent() -> None:
    """Runs in the child: the kernel ends it when its parent is gone, SIGKILL included (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def await_server(server: subprocess.Popen[bytes], url: str, log: str) -> None:
    """Wait until a server that was started answers.

    Raises:
        StoreUnreachable: it has ended, or does not answer in time.
    """
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if server.poll() is not None:
            raise StoreUnreachable(f"the Prefect server ended with exit code {server.returncode}; see {log}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise StoreUnreachable(
        f"the Prefect server was not up after {START_SECONDS:g}s; see {log}, or set PREFECT_API_URL to one that runs"
    )
