"""A helper that runs out of space wherever it can: nothing half is there, and the next execution goes on."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from support.crash.helper_command import helper_command, helper_environment
from support.crash.trainer import STEPS
from support.disks import PATIENCE_SECONDS, Disks
from support.root_faults import faults_of

ROOM = range(8, 80, 9)
"""Names that a disk has room for: from too few for a claim to enough for a whole execution."""
SIZES = (0, 180, 400, 20_000)
"""Bytes that a file may have: from too few for any document to enough for all, wherever they lie."""


def check_helper_was_stopped(root: LineageRoot, ended: subprocess.CompletedProcess[str], why: str) -> None:
    """An execution ended well or told in its own words what it had no room for, and nothing half is there."""
    text = ended.stdout + ended.stderr
    assert ended.returncode == 0 or why in text, text
    assert "internal error" not in text, text
    if root.store.folders(""):
        assert faults_of(root) == []


def check_goes_on(root: LineageRoot, before: list[int], ended: subprocess.CompletedProcess[str]) -> None:
    """The next execution begins where the newest save that was published ends, and comes to the same end."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (f"from step {before[-1]} of" if before else "from scratch") in ended.stdout
    latest = root.latest().publication
    assert latest is not None and latest.step == STEPS
    assert faults_of(root) == []


def steps_of(root: LineageRoot) -> list[int]:
    return [publication.step for publication in root.publications()] if os.path.isdir(root.location) else []


def test_wherever_a_helper_runs_out_of_space_nothing_half_is_there(disks: Disks, tmp_path: Path) -> None:
    # given disks with room for few names, one with more than the other
    stopped: list[str] = []
    for names in ROOM:
        place = tmp_path / f"disk-{names}"
        disks.small(place, names=names)
        root = LineageRoot(PosixStore(disks.seen(place) / "runs" / "crash"))
        # when an execution runs on each, and another one once there is room
        first = disks.run(*helper_command(place, 1), env=helper_environment())
        check_helper_was_stopped(root, first, "No space left on device")
        disks.mount("-o", "remount,nr_inodes=10000", str(place))
        before = steps_of(root)
        check_goes_on(root, before, disks.run(*helper_command(place, 2), env=helper_environment()))
        stopped.append(f"{first.returncode} at step {before[-1:]}")
    # then they were stopped at many places, and the largest disk was large enough
    assert len(set(stopped)) >= 4, stopped
    assert stopped[-1] == f"0 at step [{STEPS}]"


def test_wherever_a_file_of_the_helper_may_not_grow_nothing_half_is_there(tmp_path: Path) -> None:
    # given limits of a file's size, as a quota has them; this part takes no privileges
    stopped: list[str] = []
    for size in SIZES:
        place = tmp_path / f"limit-{size}"
        place.mkdir()
        root = LineageRoot(PosixStore(place / "runs" / "crash"))
        # when an execution runs under each, and another one without
        first = run_limited(helper_command(place, 1), size)
        check_helper_was_stopped(root, first, "File too large")
        before = steps_of(root)
        check_goes_on(root, before, run_limited(helper_command(place, 2), resource.RLIM_INFINITY))
        stopped.append(f"{first.returncode} at step {before[-1:]}")
    # then they were stopped at several places
    assert len(set(stopped)) >= 2, stopped
    assert stopped[-1] == f"0 at step [{STEPS}]"


def run_limited(command: list[str], size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["prlimit", f"--fsize={size if size >= 0 else 'unlimited'}", *command],
        env=helper_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
