"""Keeps a cluster for as long as somebody holds its lock: ``keeper.py FOLDER NODES``.

Whoever uses the cluster holds a shared lock on ``FOLDER/in-use``, which the kernel lets go of when he dies, however he
dies. Then the keeper stops the cluster and deletes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent
BOUND = 420
"""Seconds for the start; Slurm may have to be installed first."""


def main(folder: Path, nodes: str) -> None:
    cluster = folder / "cluster"
    settings = {"PREFIX": f"ds{os.getpid()}", "CPUS": "2", "KILLWAIT": "5", "MINJOBAGE": "60"}
    try:
        started = subprocess.run(
            [KIT / "up.sh", cluster, nodes],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BOUND,
        )
        told = "" if started.returncode == 0 else started.stdout.decode(errors="replace")[-2000:]
    except subprocess.TimeoutExpired:
        told = f"it did not start within {BOUND}s"
    (folder / "told.new").write_text(told)
    (folder / "told.new").rename(folder / "told")
    with open(folder / "in-use") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "closing").touch()
        subprocess.run([KIT / "down.sh", cluster, "--purge"], timeout=60, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
