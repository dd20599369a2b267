"""A save's bytes: every file says whose it is and proves what it holds, so that judging needs no design's own word."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIGN = "trainer_state.json"
"""The file that a Trainer writes last."""
FILES = ("model.safetensors", "optimizer.pt", "rng_state.pth", SIGN)
_BLOCK = 3000


@dataclass(frozen=True, order=True)
class Mark:
    """Which save a file belongs to.

    Args:
        epoch: the number of its writer's epoch.
        step: the step.
        nonce: what tells it from another save of the same step.
    """

    epoch: int
    step: int
    nonce: str


class Torn(Exception):
    """What was read is not one whole save; the text says why."""


class Gone(Torn):
    """A file of the save is not there."""


def write_files(folder: Path, mark: Mark, moment: Callable[[], None]) -> None:
    """Write a save's files in place, the sign last, as frameworks do: no temporary name, no sync.

    Args:
        folder: it is made where it is not there yet; files in it are written over.
        mark: whose they are.
        moment: called in the middle of each file, where the writer can be stopped.
    """
    os.makedirs(folder, exist_ok=True)
    for name in FILES:
        payload = secrets.token_bytes(2 * _BLOCK)
        head = {"epoch": mark.epoch, "step": mark.step, "nonce": mark.nonce, "file": name}
        digest = hashlib.sha256(payload).hexdigest()
        content = json.dumps({**head, "sha256": digest}).encode() + b"\n" + payload
        with open(folder / name, "wb", buffering=0) as file:
            file.write(content[:_BLOCK])
            moment()
            file.write(content[_BLOCK:])


def read_files(folder: Path, moment: Callable[[], None] = lambda: None) -> Mark:
    """Read a save as a program loads it, one file after the other.

    Args:
        folder: the save.
        moment: called in the middle of each file, where the reader can be stopped.

    Returns:
        Whose it is.

    Raises:
        Torn: it is not one whole save.
    """
    marks = {name: _read_file(folder / name, name, moment) for name in FILES}
    if len(set(marks.values())) > 1:
        told = ", ".join(f"{name} of {mark.epoch} step {mark.step} {mark.nonce}" for name, mark in marks.items())
        raise Torn(f"{folder} mixes saves: {told}")
    return marks[SIGN]


def _read_file(place: Path, name: str, moment: Callable[[], None]) -> Mark:
    try:
        with open(place, "rb", buffering=0) as file:
            content = file.read(_BLOCK)
            moment()
            content += file.read()
    except FileNotFoundError:
        raise Gone(f"{place} is not there") from None
    head, _, payload = content.partition(b"\n")
    try:
        said = json.loads(head)
        mark = Mark(said["epoch"], said["step"], said["nonce"])
        sound = said["file"] == name and said["sha256"] == hashlib.sha256(payload).hexdigest()
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise Torn(f"{place} does not hold what was written to it")
    return mark
