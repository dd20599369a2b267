"""The cluster as tests use it: one for the whole run, taken in turns."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

KIT = Path(__file__).resolve().parent
NODES = 2
START_BOUND = 450.0
STOP_BOUND = 60.0
_REAPED: list[subprocess.Popen[bytes]] = []
"""Daemons that this process has started again: whoever stops the cluster ends them, and nobody is to warn of them."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs."""

    folder: Path

    @property
    def commands(self) -> Path:
        """The folder of the commands that talk to it."""
        return self.folder / "cluster" / "bin"

    @property
    def path(self) -> str:
        """A PATH by which Slurm's commands are found."""
        return f"{self.commands}:{os.environ['PATH']}"

    def run(self, *words: str, script: str | None = None, check: bool = True) -> str:
        """Run one of Slurm's commands; its output."""
        done = subprocess.run(
            [self.commands / words[0], *words[1:]],
            input=script,
            text=True,
            capture_output=True,
            timeout=60,
            stdin=subprocess.DEVNULL if script is None else None,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def kit(self, script: str, *words: str) -> None:
        """Run one of the kit's scripts about a node."""
        subprocess.run([KIT / script, "-d", self.folder / "cluster", *words], check=True, timeout=60)

    @contextmanager
    def stopped(self, daemon: str) -> Iterator[None]:
        """Let a daemon (slurmctld, slurmdbd) stand still, as one that does not answer."""
        pid = int((self.folder / "cluster" / "run" / f"{daemon}.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def dead(self, daemon: str) -> Iterator[None]:
        """End a daemon (slurmctld, slurmdbd), as for an update of it, and start it again where it was."""
        note = self.folder / "cluster" / "run" / f"{daemon}.pid"
        pid = int(note.read_text())
        words = _words_of(pid)
        names = Path(f"/proc/{pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
        environment = dict(entry.partition(b"=")[::2] for entry in names)
        spaces = [(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), kind) for kind in ("net", "uts")]
        try:
            os.kill(pid, signal.SIGTERM)
            self.until(lambda: not _words_of(pid), f"{daemon} is down")
            yield
        finally:
            into = [f"--{kind}=/proc/self/fd/{number}" for number, kind in spaces]
            with open(self.folder / "cluster" / "log" / f"{daemon}.out.log", "ab") as log:
                again = subprocess.Popen(
                    ["nsenter", *into, *words],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[number for number, _ in spaces],
                )
            note.write_text(f"{again.pid}\n")
            for number, _ in spaces:
                os.close(number)
            ask = ("scontrol", "ping") if daemon == "slurmctld" else ("sacctmgr", "-n", "list", "cluster")
            self.until(lambda: "DOWN" not in (said := self.run(*ask, check=False)) and said, f"{daemon} is back")
            _REAPED.append(again)

    def job_on(self, node: str, partition: str, script: str) -> str:
        """Submit a job of nobody's to a node; its id."""
        return self.run(
            "sbatch", "--parsable", "-p", partition, "-w", node, "--exclusive", "-o", "/dev/null", script=script
        )

    def until(self, condition, what: str, bound: float = 60.0) -> None:
        """Wait for something."""
        give_up = time.monotonic() + bound
        while not condition():
            assert time.monotonic() < give_up, f"not within {bound}s: {what}"
            time.sleep(0.05)

    def clear(self) -> None:
        """End every job, and wait until all nodes are free."""
        self.run("scancel", "--user=root", check=False)
        self.run("scancel", "--user=root", "--signal=KILL", check=False)
        idle = f"{NODES}"
        self.until(
            lambda: self.run("sinfo", "-h", "-p", "normal", "-t", "idle", "-o", "%D", check=False) == idle, "idle"
        )


def _words_of(pid: int) -> list[bytes]:
    """The command of a process; empty where it is gone, or only not reaped yet."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return []
    return text.rstrip(b"\0").split(b"\0") if text else []


def why_not() -> str:
    """Why there can be no cluster here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm cluster takes root"
    if shutil.which("slurmctld") is None and shutil.which("apt-get") is None:
        return "Slurm is not installed, and there is no apt-get to install it"
    made = subprocess.run(["unshare", "--net", "--pid", "--uts", "--fork", "--mount", "true"], capture_output=True)
    return "" if made.returncode == 0 else "no namespaces can be made here"


@contextmanager
def shared_cluster(run: Path) -> Iterator[Cluster]:
    """The cluster of a run of tests, started where it does not run yet.

    Args:
        run: a folder that all workers of this run share.
    """
    with open(run / "slurm.lock", "w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        folder, lock = _join(run) or _start(run)
    try:
        yield Cluster(folder)
    finally:
        keeper = _keeper_of(run)
        os.close(lock)
        _await_end(folder, keeper)


def _join(run: Path) -> tuple[Path, int] | None:
    with suppress(OSError):
        folder = Path((run / "slurm.folder").read_text().split()[0])
        lock = os.open(folder / "in-use", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if not (folder / "closing").exists() and (folder / "told").exists():
                return _started(folder, lock)
        except BlockingIOError:
            pass
        os.close(lock)
    return None


def _start(run: Path) -> tuple[Path, int]:
    folder = Path(tempfile.mkdtemp(prefix="ds-", dir="/tmp"))
    lock = os.open(folder / "in-use", os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    # Its own session, and no pipe to us: it outlives whoever started it.
    keeper = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", str(KIT / "keeper.py"), str(folder), str(NODES)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)],
        setsid=True,
    )
    (run / "slurm.folder").write_text(f"{folder} {keeper}")
    give_up = time.monotonic() + START_BOUND
    while not (folder / "told").exists():
        if os.waitpid(keeper, os.WNOHANG) != (0, 0) or time.monotonic() > give_up:
            os.close(lock)
            raise AssertionError(f"the Slurm cluster in {folder} did not start")
        time.sleep(0.05)
    return _started(folder, lock)


def _started(folder: Path, lock: int) -> tuple[Path, int]:
    """A cluster that runs, unless its keeper tells why it does not."""
    told = (folder / "told").read_text()
    if told:
        os.close(lock)
        raise AssertionError(told)
    return folder, lock


def _keeper_of(run: Path) -> int:
    return int((run / "slurm.folder").read_text().split()[1])


def _await_end(folder: Path, keeper: int) -> None:
    """Wait until the keeper is done, unless somebody else still uses the cluster."""
    soon, give_up = time.monotonic() + 2.0, time.monotonic() + STOP_BOUND
    while folder.exists() and time.monotonic() < give_up:
        if time.monotonic() > soon and not (folder / "closing").exists():
            return
        time.sleep(0.05)
    with suppress(ChildProcessError):
        os.waitpid(keeper, os.WNOHANG)


@contextmanager
def turn(cluster: Cluster) -> Iterator[None]:
    """Have the cluster alone: tests of other workers wait."""
    with open(cluster.folder / "turn", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
