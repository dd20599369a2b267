"""A wrapper that is killed while bytes are on their way takes nothing along, and leaves nothing that looks whole."""

from __future__ import annotations

from typing import Any

import pytest

from prefect_dispatch.stores.s3_mover import PART
from support.full_form import FULL
from support.s3 import faults
from support.s3.messages import Operation
from support.s3.runs import NEVER
from support.s3.trainer import STEPS

SMALL, IN_PARTS = 1000, 2 * PART + 1000
UPLOADS = (Operation.PUT, Operation.PART)
BIG_FILE = "deep/ballast"


@pytest.mark.parametrize(
    ("size", "of"),
    [(SMALL, 1), (IN_PARTS, 2), *([(SMALL, 2), (IN_PARTS, 1)] if FULL else [])],
    ids=lambda value: {SMALL: "small", IN_PARTS: "in parts", 1: "first save", 2: "second save"}[value],
)
def test_a_wrapper_killed_in_mid_upload_costs_that_save_alone(runs: Any, size: int, of: int) -> None:
    # given a run that uploads the big file of a save, of which the server gets no end
    runs.size = size
    rule = runs.proxy.arm(faults.hold_upload, *UPLOADS, key=f"step-{of}/{BIG_FILE}", times=None)
    process = runs.start(until=2, gate=NEVER)
    rule.wait_held()
    # when it is killed
    runs.kill(process)
    runs.proxy.disarm()
    # then what was published is what came before
    runs.check()
    assert runs.steps() == list(range(1, of))
    # and a new activation goes on from there
    runs.check_carried_on(2, began_at=of - 1)


@pytest.mark.parametrize(
    "size", [IN_PARTS, *([SMALL] if FULL else [])], ids=lambda size: "small" if size == SMALL else "in parts"
)
def test_a_wrapper_killed_in_mid_restore_changes_nothing(runs: Any, size: int) -> None:
    # given two saves, and a run that gets the big file of the newer one as far as its middle
    runs.size = size
    runs.seed(1, 2)
    rule = runs.proxy.arm(faults.HangInBody(size // 2), Operation.GET, key=f"step-2/{BIG_FILE}", times=None)
    process = runs.start(2, gate=NEVER)
    rule.wait_held()
    # when it is killed
    ended = runs.kill(process)
    runs.proxy.disarm()
    # then its program has not begun
    assert ended.began_at is None, ended.told
    runs.check()
    assert runs.steps() == [1, 2]
    runs.check_carried_on(3, began_at=2)


def test_executions_of_two_epochs_upload_at_once_and_the_later_one_counts(runs: Any) -> None:
    # given an old run in the middle of its third upload, and its replacement in the middle of its own second one
    old = runs.proxy.arm(faults.wait_and_serve, Operation.PUT, key=f"{runs.attempt(1)}/step-3/{BIG_FILE}")
    first = runs.start(1, gate=str(runs.folder / "gate"))
    old.wait_held()
    new = runs.proxy.arm(faults.wait_and_serve, Operation.PUT, key=f"{runs.attempt(2)}/step-3/{BIG_FILE}")
    second = runs.start(2, until=3, gate=NEVER)
    new.wait_held()
    # when both are let go, the old one first, and it goes on to the end
    old.end()
    (runs.folder / "gate").touch()
    assert runs.end(first).code == 0
    new.end()
    second.terminate()
    ended = runs.end(second)
    # then both have published what they saved, and the greater epoch is what counts, however far the old one came
    assert ended.began_at == 2, ended.told
    assert runs.steps(1) == [1, 2, 3, 4]
    assert runs.steps(2) == [3]
    runs.check()
    runs.check_carried_on(3, began_at=3)
    assert runs.steps(3) == [STEPS]
