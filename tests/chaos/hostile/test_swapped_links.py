"""A hostile job that swaps files and folders for links while others look, copy and delete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.folder import open_root
from prefect_dispatch.stores.posix import SWEEP_AGE_SECONDS, PosixStore
from prefect_dispatch.stores.posix_copy import copy_bytes
from prefect_dispatch.stores.removal import remove_all

SECONDS = 1.5
"""How long a race is run; the swapper comes to some ten thousand swaps in it."""
SWAPS = """
import os, sys
path, other, away = sys.argv[1:]
while True:
    try:
        os.rename(path, away)
        os.symlink(other, path)
        os.unlink(path)
        os.rename(away, path)
    except OSError:
        try:
            os.unlink(path)
        except OSError:
            pass
        try:
            os.rename(away, path)
        except OSError:
            pass
"""


@contextmanager
def racing(program: str, *arguments: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def for_a_while() -> Iterator[int]:
    number, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield number
        number += 1


def secrets_in(folder: Path) -> list[str]:
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and b"hunter2" in path.read_bytes()
    ]


def test_a_file_that_is_swapped_for_a_link_is_never_copied_from_outside(victim):
    # given a save whose file is swapped for a link to a secret of the same size
    secret = victim.outside / "secret"
    save = victim.own / "exec" / victim.attempt / "step-2"
    file = save / "model.bin"
    file.write_bytes(b"w" * secret.stat().st_size)
    root, epoch = victim.lineage_root(), Epoch(0, 2, 0)
    root.publish(epoch, victim.attempt, f"exec/{victim.attempt}/step-2", 2)
    before = victim.outer_world()
    copies = refused = 0
    # when next executions import it all the while
    with racing(SWAPS, file, secret, save.parent / "away"):
        for number in for_a_while():
            attempt = f"{new_token()}-0"
            root.claim(Epoch(0, 10 + number, 0), attempt, "", "run")
            root.start(Epoch(0, 10 + number, 0), attempt, {})
            try:
                copies += root.pin(Epoch(0, 10 + number, 0), attempt, ResumeChoice()).path is not None
            except DispatchError:
                refused += 1
    # then
    assert copies + refused > 0
    assert secrets_in(victim.own / "meta") == []
    assert victim.outer_world() == before


def test_a_folder_that_is_swapped_for_a_link_is_never_written_to_outside(victim):
    # given
    before = victim.outer_world()
    store = PosixStore(victim.own)
    done = 0
    # when
    with racing(SWAPS, victim.meta, victim.outside, victim.own / "exec" / "away"):
        for number in for_a_while():
            try:
                store.ledger(f"meta/{victim.attempt}/journal").create(f"{number}.json", b"{}")
                store.copy(
                    f"exec/{victim.attempt}/step-2",
                    f"meta/{victim.attempt}/snap/{number}/x",
                    store.files(f"exec/{victim.attempt}/step-2"),
                )
                done += 1
            except DispatchError:
                pass
    # then
    assert done > 0
    assert victim.outer_world() == before


def test_a_file_that_grows_as_fast_as_it_is_copied_is_copied_no_further_than_it_was_listed(tmp_path):
    # given a source that never ends, as a file under a writer that is faster
    with open("/dev/zero", "rb") as source, (tmp_path / "copy").open("wb") as target:
        # when
        copy_bytes(source.fileno(), target.fileno(), 3 * 2**20 + 1)
    # then
    assert (tmp_path / "copy").stat().st_size == 3 * 2**20 + 1


def test_sweeping_deletes_nothing_outside_while_folders_are_swapped_for_links(victim):
    # given leavings in tmp/, one of whose folders is swapped for a link to the outside, and tmp/ itself
    before = victim.outer_world()
    store = PosixStore(victim.own, now=lambda: time.time() + 2 * SWEEP_AGE_SECONDS)
    workshop = victim.own / "tmp"
    swept = 0
    # when
    for path, away in ((workshop / "left" / "inner", workshop / "left" / "away"), (workshop, victim.own / "away")):
        (workshop / "left" / "inner").mkdir(parents=True, exist_ok=True)
        with racing(SWAPS, path, victim.outside, away):
            for number in for_a_while():
                try:
                    (workshop / "left" / "inner" / "deep").mkdir(parents=True, exist_ok=True)
                    (workshop / "left" / "inner" / f"file-{number}").touch()
                except OSError:
                    pass
                try:
                    store.probe()
                    swept += 1
                except DispatchError:
                    pass
        for moved in (path, away):
            if moved.is_symlink():
                moved.unlink()
    # then what this test itself has written through the links is there beside it
    after = victim.outer_world()
    for place in sorted(after.keys() - before.keys(), reverse=True):
        Path(place).rmdir() if Path(place).is_dir() else Path(place).unlink()
    assert swept > 0
    assert {place: after.get(place) for place in before} == before


def test_a_tree_of_links_and_of_any_depth_is_deleted_and_nothing_else(victim, tmp_path):
    # given a tree deeper than any path can be, with links out of it on the way
    before = victim.outer_world()
    here = os.open(".", os.O_RDONLY)
    (tmp_path / "tree").mkdir()
    try:
        os.chdir(tmp_path / "tree")
        for _ in range(3000):
            os.symlink(victim.outside, "link")
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.fchdir(here)
        os.close(here)
    os.mkfifo(tmp_path / "tree" / "fifo")
    # when
    with open_root(tmp_path) as folder:
        gone = remove_all(folder, "tree")
    # then
    assert gone
    assert list(tmp_path.iterdir()) == []
    assert victim.outer_world() == before


def test_deleting_stops_when_it_is_told_to(tmp_path):
    # given
    for number in range(100):
        (tmp_path / "tree" / str(number)).mkdir(parents=True)
    answers = iter([True] * 10)
    # when
    with open_root(tmp_path) as folder:
        gone = remove_all(folder, "tree", lambda: next(answers, False))
    # then
    assert not gone
    assert 80 < len(list((tmp_path / "tree").iterdir())) < 100
