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

from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.settings import state_folder

START_SECONDS = 180.0
"""How long the server may take to come up; on two busy cores with a new database that has taken a minute."""
STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def prefect_api() -> Iterator[str]:
    """Have a Prefect API: the one that Prefect is configured for, else a temporary server on the loopback.

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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "prefect-server.log"
    print("starting a Prefect server for this command; that can take a minute…", file=sys.stderr, flush=True)
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "PREFECT_UI_API_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    # At exit and not before: what Prefect has still to send then is sent first, since handlers run in reverse order.
    atexit.register(_stop, server)
    _wait_for(server, url, str(log))
    with temporary_settings({PREFECT_API_URL: url}):
        yield url


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _end_with_parent() -> None:
    """Runs in the child: the kernel ends it when its parent is gone, SIGKILL included (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_for(server: subprocess.Popen[bytes], url: str, log: str) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if server.poll() is not None:
            raise StoreUnreachable(f"a temporary Prefect server ended with exit code {server.returncode}; see {log}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise StoreUnreachable(
        f"a temporary Prefect server was not up after {START_SECONDS:g}s; see {log}, "
        "or set PREFECT_API_URL to one that runs"
    )
