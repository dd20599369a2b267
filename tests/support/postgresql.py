"""A PostgreSQL of the tests' own: in a passing folder, on a free port of the loopback, ended by its pid."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.debian import install

USER = "postgres"
"""As whom it runs where we are root, which it refuses to serve; Debian's package makes this user."""
_OWNER = "prefect"
_DEBIANS = "/usr/lib/postgresql/*/bin"
_PATIENCE = 60.0
# The machine does not crash while the tests run, and what is here need not outlive them.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # So many tuples pass through tables of a few rows that it is worth the looks.
    "autovacuum_naptime": "10s",
}


def why_not() -> str:
    """Why there can be none here; empty where there can. It is installed where that takes no asking."""
    install("postgresql", unless=programs)
    if programs() is None:
        return "PostgreSQL is not installed; Debian's package is postgresql"
    if os.geteuid() == 0 and not (_has(USER) and shutil.which("setpriv")):
        return f"PostgreSQL does not run as root, and there is no user {USER} or no setpriv"
    return ""


def programs() -> Path | None:
    """The folder of its programs; Debian keeps them off PATH, one folder for each version."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max(Path("/").glob(_DEBIANS.removeprefix("/")), key=lambda each: int(each.parent.name), default=None)


class PostgreSQL:
    """One that serves.

    Args:
        bin: the folder of its programs.
        port: of the loopback.
        password: of its only user.
    """

    def __init__(self, bin: Path, port: int, password: str) -> None:
        self._bin = bin
        self._port = port
        self._password = password

    def create(self) -> str:
        """Make an empty database. Returns its URL as Prefect takes it."""
        name = f"prefect_{secrets.token_hex(4)}"
        self._run("createdb", name)
        return f"postgresql+asyncpg://{_OWNER}:{self._password}@127.0.0.1:{self._port}/{name}"

    def ask(self, url: str, query: str) -> str:
        """What a query of one of these databases gives, as text."""
        words = ("--no-psqlrc", "--tuples-only", "--no-align", "--command", query)
        return self._run("psql", *words, url.rpartition("/")[2])

    def is_ready(self) -> bool:
        return self._call("psql", "--command", "select 1", "postgres").returncode == 0

    def _run(self, program: str, *words: str) -> str:
        done = self._call(program, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _call(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        where = ("--host", "127.0.0.1", "--port", str(self._port), "--username", _OWNER)
        own = {"PGPASSWORD": self._password, "PGCONNECT_TIMEOUT": "10"}
        return subprocess.run(
            [str(self._bin / program), *where, *words], env={**os.environ, **own}, capture_output=True, text=True
        )


@contextmanager
def serve() -> Iterator[PostgreSQL]:
    """Start one, and end it and its folder. To be called by the main thread: the kernel kills it with that one."""
    bin = programs()
    assert bin is not None, why_not()
    with tempfile.TemporaryDirectory(prefix="dispatch-postgresql-") as made:
        folder = Path(made)
        data, words, log = folder / "data", folder / "password", folder / "log"
        password = secrets.token_hex(16)
        words.write_text(password)
        if os.geteuid() == 0:
            for each in (folder, words):
                shutil.chown(each, USER, pwd.getpwnam(USER).pw_gid)
        own = (f"--username={_OWNER}", "--auth=scram-sha-256", f"--pwfile={words}")
        initialize = [str(bin / "initdb"), "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", *own, str(data)]
        done = subprocess.run(_as_user(initialize), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = [f"--{name}={value}" for name, value in {**_SETTINGS, "port": str(port)}.items()]
        with log.open("wb") as output:
            process = subprocess.Popen(
                _as_user([str(bin / "postgres"), "-D", str(data), *settings]),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            database = PostgreSQL(bin, port, password)
            give_up = time.monotonic() + _PATIENCE
            while not database.is_ready():
                assert process.poll() is None and time.monotonic() < give_up, log.read_text(errors="replace")
                time.sleep(0.1)
            yield database
        finally:
            # Who is still connected is sent away: "fast shutdown" in PostgreSQL's words.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _as_user(command: list[str]) -> list[str]:
    """A command that runs as somebody whom PostgreSQL serves, and is killed with this process (setpriv(1))."""
    if shutil.which("setpriv") is None:
        return command
    other = ("--reuid", USER, "--regid", USER, "--clear-groups") if os.geteuid() == 0 else ()
    return ["setpriv", *other, "--pdeathsig", "KILL", "--", *command]


def _has(user: str) -> bool:
    try:
        return pwd.getpwnam(user).pw_uid != 0
    except KeyError:
        return False
