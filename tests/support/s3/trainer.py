"""A training whose saves have a big file that is derived from the step: a torn or foreign one shows at once.

Run as ``trainer.py UNTIL BYTES GATE``. It goes on from what it is told to resume from, after a look at every byte of
it, saves after each step, and after step UNTIL waits until the file GATE is there or until it is asked to exit.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

STEPS = 4
NOT_DONE = 4
PATIENCE = 120.0


def after(step: int, weights: int) -> int:
    return (weights * 6364136223846793005 + step) % 2**61


def expected(step: int) -> str:
    weights = 1
    for number in range(1, step + 1):
        weights = after(number, weights)
    return f"{step},{weights}"


def ballast(step: int, size: int) -> bytes:
    block = b"".join(hashlib.sha256(f"{step}:{number}".encode()).digest() for number in range(32))
    return (block * (size // len(block) + 1))[:size]


def contents(step: int, size: int) -> dict[str, bytes]:
    """The files of the save of a step."""
    return {
        "weights": expected(step).encode(),
        "deep/ballast": ballast(step, size),
        ".complete": str(step).encode(),
    }


def save(step: int, size: int) -> None:
    folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], f"step-{step}")
    os.makedirs(os.path.join(folder, "deep"))
    for name, content in contents(step, size).items():
        path = os.path.join(folder, name)
        with open(path + ".new", "wb") as file:
            file.write(content)
        os.replace(path + ".new", path)


def load() -> int:
    source = os.environ["DISPATCH_RESUME_FROM"]
    if not source:
        return 0
    found = {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, source)] = file.read()
    step = int(os.environ["DISPATCH_RESUME_STEP"])
    assert found == contents(step, len(found["deep/ballast"])), "what is resumed from is not what was saved"
    return step


def main(until: str, size: str, gate: str) -> int:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    step = load()
    sys.stdout.write(f"begun at {step}\n")
    sys.stdout.flush()
    while step < min(int(until), STEPS):
        step += 1
        save(step, int(size))
    give_up = time.monotonic() + PATIENCE
    while not asked and not os.path.exists(gate):
        if time.monotonic() > give_up:
            return 3
        time.sleep(0.01)
    return 0 if step == STEPS else NOT_DONE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
