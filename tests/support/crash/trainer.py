"""A training whose weights are one number, computed from every step in its order. It saves after each step.

Run as ``trainer.py KIND GATE``. In the middle it waits until it is asked to exit, unless the file GATE is there:
so each job is preempted once, at a step that the test knows, however slow the machine is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

STEPS = 6
MIDDLE = 3
PATIENCE = 60.0


def after(step: int, weights: int) -> int:
    return (weights * 6364136223846793005 + step) % 2**61


def expected(step: int = STEPS) -> str:
    weights = 1
    for number in range(1, step + 1):
        weights = after(number, weights)
    return f"{step},{weights}"


def save_folder(text: str, step: int) -> None:
    """A folder with a link in it, marked inside: published where it lies."""
    folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], f"step-{step}")
    os.mkdir(folder)
    write(os.path.join(folder, "weights"), text)
    os.symlink("weights", os.path.join(folder, "newest"))
    write(os.path.join(folder, ".complete"), str(step))


def save_over(text: str, step: int) -> None:
    """One file that is written over each time, marked beside it: published as a copy."""
    path = os.path.join(os.environ["DISPATCH_EXEC_DIR"], "model")
    if step > 1 and os.path.exists(path + ".complete"):
        os.unlink(path + ".complete")
    write(path, text)
    write(path + ".complete", str(step))


def save_state(text: str, step: int) -> None:
    sys.stdout.write("openjd_checkpoint_save: " + json.dumps({"state": text}) + "\n")
    sys.stdout.flush()


def save_barred(text: str, step: int) -> None:
    """A folder that is published by a process of its own; of the second one, the disk refuses to keep the files."""
    folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], f"step-{step}")
    os.mkdir(folder)
    write(os.path.join(folder, "weights"), text)
    pid = os.fork()
    if pid == 0:
        publish_and_exit(folder, step)
    os.waitpid(pid, 0)


def publish_and_exit(folder: str, step: int) -> None:
    armed = {name.removeprefix("PROGRAMS_"): value for name, value in os.environ.items() if "PROGRAMS_" in name}
    code = 1
    try:
        from failing_fsync import fail_fsync

        from prefect_dispatch import failpoints, job
        from prefect_dispatch.job.execution import Execution

        failpoints.arm(armed)
        execution = Execution.of_environment(os.environ)
        execution.root.complete(execution.epoch, execution.attempt, f"step-{step}")
        if step == 2:
            fail_fsync()
        job.publish(folder, step)
        code = 0
    except Exception as error:
        sys.stderr.write(f"step {step} is not published: {type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def write(path: str, text: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def load() -> str:
    source = os.environ["DISPATCH_RESUME_FROM"]
    if not source:
        return "0,1"
    with open(os.path.join(source, "weights") if os.path.isdir(source) else source) as file:
        text = file.read()
    # What it goes on from must be a step's own weights: a torn or foreign save shows here already.
    assert text == expected(int(text.partition(",")[0])), text
    return text


def main(kind: str, gate: str) -> int:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    save = {"folder": save_folder, "over": save_over, "state": save_state, "barred": save_barred}[kind]
    step, weights = map(int, load().split(","))
    give_up = time.monotonic() + PATIENCE
    while step < STEPS:
        step += 1
        weights = after(step, weights)
        time.sleep(0.02)
        save(f"{step},{weights}", step)
        while step == MIDDLE and not asked and not os.path.exists(gate):
            if time.monotonic() > give_up:
                return 3
            time.sleep(0.01)
        if asked and step < STEPS:
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
