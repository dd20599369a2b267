"""Train a small network on handwritten digits, in a way that an interruption does not change.

A program as people write them: it knows nothing of Prefect or schedulers and only reads three variables, which
`dispatch-job` sets. It runs as well without any of them, in a plain folder.

    DISPATCH_EXEC_DIR      where it writes, and nowhere else (default: the current folder)
    DISPATCH_RESUME_FROM   the save to go on from; empty or unset to start from scratch
    DISPATCH_RESUME_STEP   that save's step, which must be the one inside it

After each epoch of 40 steps it writes a save, a folder such as `step-000040`, and in it last of all the file
`.complete`, whose text is the step: a folder without it is no save. Only its own newest saves are kept (`--keep`).

A save holds all that the next step depends on: weights, optimiser, data order and random state. So a run that was
interrupted anywhere and resumed ends with the same weights, bit for bit, as one that was not; the last line is their
digest. That holds on one machine: another processor may round differently.

On SIGTERM it goes on training and saving for `--stubborn` seconds, as programs do that catch the signal and take their
time; then it finishes the epoch, saves and exits with 143. Further SIGTERMs change nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# More than one thread adds up in an order that changes from run to run. Read by the library when it is loaded.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]

TRAINED_ON = 1440
BATCH = 36
STEPS_PER_EPOCH = TRAINED_ON // BATCH
HIDDEN = 48
LEARNING_RATE = 0.004
DECAYS = (0.9, 0.999)
NOISE = 0.05
MARKER = ".complete"


class Digits:
    """The 1,797 images that scikit-learn ships: 1,440 to train on, the rest to test with."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.images = np.ascontiguousarray(images / 16.0 - 0.3)
        self.labels = labels.astype(np.int64)
        self.digest = hashlib.sha256(self.images.tobytes() + self.labels.tobytes()).hexdigest()


class Training:
    """A network, its optimiser (Adam, arXiv:1412.6980), the data's order and the random state: all that a step needs.

    Args:
        digits: what it learns.
        seed: where its random numbers start.
    """

    def __init__(self, digits: Digits, seed: int) -> None:
        self.digits = digits
        self.seed = seed
        self.step = 0
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.weights: dict[str, Array] = {
            "hidden": self.random.normal(0.0, 1 / 8, (64, HIDDEN)),
            "hidden_bias": np.zeros(HIDDEN),
            "output": self.random.normal(0.0, HIDDEN**-0.5, (HIDDEN, 10)),
            "output_bias": np.zeros(10),
        }
        self.means = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self.squares = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self.order: Array = np.arange(TRAINED_ON)

    def run_epoch(self) -> float:
        """Train 40 steps on the images in a new order; returns the mean loss."""
        self.random.shuffle(self.order)
        losses = [self._run_step(batch) for batch in np.split(self.order, STEPS_PER_EPOCH)]
        return float(np.mean(losses))

    def _run_step(self, batch: Array) -> float:
        labels = self.digits.labels[batch]
        images = self.digits.images[batch] + self.random.normal(0.0, NOISE, (BATCH, 64))
        hidden, chances = self._forward(images)
        error = chances.copy()
        error[np.arange(BATCH), labels] -= 1.0
        error /= BATCH
        back = (error @ self.weights["output"].T) * (hidden > 0)
        self.step += 1
        self._move("output", hidden.T @ error)
        self._move("output_bias", error.sum(axis=0))
        self._move("hidden", images.T @ back)
        self._move("hidden_bias", back.sum(axis=0))
        return float(-np.log(chances[np.arange(BATCH), labels]).mean())

    def _forward(self, images: Array) -> tuple[Array, Array]:
        hidden = np.maximum(images @ self.weights["hidden"] + self.weights["hidden_bias"], 0.0)
        scores = hidden @ self.weights["output"] + self.weights["output_bias"]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, chances / chances.sum(axis=1, keepdims=True)

    def _move(self, name: str, gradient: Array) -> None:
        mean, square = self.means[name], self.squares[name]
        mean += (1 - DECAYS[0]) * (gradient - mean)
        square += (1 - DECAYS[1]) * (gradient**2 - square)
        rate = LEARNING_RATE * (1 - DECAYS[1] ** self.step) ** 0.5 / (1 - DECAYS[0] ** self.step)
        self.weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)

    def accuracy(self) -> float:
        """Return the share of the test images that it reads correctly."""
        _, chances = self._forward(self.digits.images[TRAINED_ON:])
        return float((chances.argmax(axis=1) == self.digits.labels[TRAINED_ON:]).mean())

    def digest(self) -> str:
        """Return the sha256 of the weights' bytes."""
        whole = hashlib.sha256()
        for name, array in sorted(self.weights.items()):
            whole.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return whole.hexdigest()

    def save(self, folder: Path) -> None:
        """Write a save; it is one from the moment that its marker appears."""
        if folder.exists():
            remove_save(folder)
        folder.mkdir(parents=True)
        np.savez(folder / "weights.npz", **_named("weight", self.weights))
        np.savez(folder / "optimiser.npz", **_named("mean", self.means), **_named("square", self.squares))
        np.savez(folder / "order.npz", order=self.order)
        state = {"step": self.step, "random": self.random.bit_generator.state, **self._identity()}
        (folder / "state.json").write_text(json.dumps(state, indent=2) + "\n")
        write_whole(folder / MARKER, f"{self.step}\n")

    def load(self, folder: Path) -> None:
        """Go on from a save.

        Raises:
            SystemExit: it is not whole, or belongs to another run.
        """
        if not (folder / MARKER).exists():
            raise SystemExit(f"train_digits: {folder} has no {MARKER}: it is not a whole save; choose another")
        state = json.loads((folder / "state.json").read_text())
        for name, mine in self._identity().items():
            if state[name] != mine:
                raise SystemExit(
                    f"train_digits: {folder} was trained with {name} {state[name]}, not {mine}; choose another save"
                )
        self.step = state["step"]
        self.random.bit_generator.state = state["random"]
        with np.load(folder / "weights.npz", allow_pickle=False) as weights:
            self.weights = {name: weights[f"weight_{name}"] for name in self.weights}
        with np.load(folder / "optimiser.npz", allow_pickle=False) as optimiser:
            self.means = {name: optimiser[f"mean_{name}"] for name in self.weights}
            self.squares = {name: optimiser[f"square_{name}"] for name in self.weights}
        with np.load(folder / "order.npz", allow_pickle=False) as order:
            self.order = order["order"]

    def _identity(self) -> dict[str, Any]:
        return {"seed": self.seed, "data": self.digits.digest, "hidden": HIDDEN, "batch": BATCH}


def _named(prefix: str, arrays: dict[str, Array]) -> dict[str, Any]:
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.replace(path)


def remove_save(folder: Path) -> None:
    """Remove a save, its marker first, so that what is left of it at any moment is no save."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder)


class Notice:
    """A SIGTERM that is obeyed late.

    Args:
        stubborn_seconds: for how long it changes nothing.
    """

    def __init__(self, stubborn_seconds: float) -> None:
        self._stubborn_seconds = stubborn_seconds
        self._stop_at: float | None = None
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: object) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._stubborn_seconds

    def is_due(self) -> bool:
        """Whether it is time to end."""
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def close(self) -> None:
        """Ignore SIGTERM from now on: on its way out the interpreter puts back the handler that kills."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def pace(self, until: float) -> None:
        """Wait until a monotonic time, or until it is time to end."""
        while not self.is_due() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


def train(training: Training, epochs: int, folder: Path, keep: int, seconds: float, notice: Notice) -> Iterator[float]:
    """Train up to an epoch and save after each; yields each epoch's mean loss once its save is whole."""
    own_saves: list[Path] = []
    while training.step < epochs * STEPS_PER_EPOCH and not notice.is_due():
        began = time.monotonic()
        loss = training.run_epoch()
        notice.pace(began + seconds)
        own_saves.append(folder / f"step-{training.step:06d}")
        training.save(own_saves[-1])
        while len(own_saves) > keep:
            remove_save(own_saves.pop(0))
        yield loss


def read_options(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="train_digits", description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=40, help="epochs in all, those before a resume included")
    parser.add_argument("--seed", type=int, default=7, help="where the random numbers start")
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="shortest time of an epoch, for a demo")
    parser.add_argument("--stubborn", type=float, default=0.0, metavar="SECONDS", help="how long to ignore SIGTERM")
    parser.add_argument("--keep", type=int, default=3, help="own saves to keep, 2 at least")
    options = parser.parse_args(words)
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: train at least 1")
    if options.keep < 2:
        parser.error(f"--keep {options.keep}: keep at least 2, or a crash in the middle of a save can leave none")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: use 0 or more")
    return options


def main(words: list[str]) -> int:
    """Train, and report on the way."""
    options = read_options(words)
    notice = Notice(options.stubborn)
    folder = Path(os.environ.get("DISPATCH_EXEC_DIR") or ".").resolve()
    training = Training(Digits(), options.seed)

    if resume_from := os.environ.get("DISPATCH_RESUME_FROM"):
        training.load(Path(resume_from))
        promised = os.environ.get("DISPATCH_RESUME_STEP")
        if promised and int(promised) != training.step:
            raise SystemExit(f"train_digits: {resume_from} is of step {training.step}, not {promised} as announced")
        print(f"resumed from step {training.step}", flush=True)

    in_all = options.epochs * STEPS_PER_EPOCH
    for loss in train(training, options.epochs, folder, options.keep, options.seconds_per_epoch, notice):
        print(f"openjd_progress: {100 * training.step / in_all:.1f}", flush=True)
        print(f"openjd_status: step {training.step} of {in_all}, loss {loss:.4f}", flush=True)
    if training.step < in_all:
        notice.close()
        print(f"asked to end: saved step {training.step}", flush=True)
        return 128 + signal.SIGTERM

    notice.close()
    result = {"digest": training.digest(), "accuracy": training.accuracy(), "steps": training.step}
    write_whole(folder / "final.json", json.dumps(result) + "\n")
    print(f"accuracy: {result['accuracy']:.4f}", flush=True)
    print(f"digest: {result['digest']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
