"""Two processes of one execution that find the same saves agree on one number for each."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.layout import numbers_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    root, epoch, attempt = LineageRoot(PosixStore(tmp_path)), Epoch(0, 1, 0), attempt_of(new_token(), 0)
    root.prepare("")
    root.claim(epoch, attempt, "", "run")
    root.start(epoch, attempt, {})
    saves = Saves(SaveKind.SETTLE, pattern="c-*", settle=timedelta(0))
    return Execution("digits", epoch, attempt, root, saves, ResumeChoice(), {})


HOLD = (
    "import fcntl, os, sys, time\n"
    "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)\n"
)


@pytest.fixture
def holder(execution: Execution) -> Iterator[subprocess.Popen[bytes]]:
    """Another process of the execution that has the turn to publish and does nothing with it."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, execution.folder], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_while_one_publishes_another_leaves_what_it_found_to_it(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c-1", "c-2"):
        Path(execution.folder, name).write_text(name)
    first, second = Saving(execution), Saving(execution)
    real = LineageRoot.publish
    meanwhile: list[Any] = []

    def publish(self: LineageRoot, *arguments: Any, **options: Any) -> Any:
        meanwhile.append(second.scan())
        return real(self, *arguments, **options)

    monkeypatch.setattr(LineageRoot, "publish", publish)
    published = first.scan()

    assert [publication.path.rpartition("/")[2] for publication in published] == ["c-1", "c-2"]
    assert meanwhile == [[], []] and second.scan() == []
    assert execution.root.store.ledger(numbers_folder(execution.attempt)).names() == [f"{n:020d}" for n in (1, 2)]


def test_what_one_that_died_had_found_is_published_by_another(
    execution: Execution, holder: subprocess.Popen[bytes]
) -> None:
    Path(execution.folder, "c-1").write_text("x")
    saving = Saving(execution)
    before = saving.scan()
    holder.kill()
    holder.wait()

    assert before == []
    assert [publication.step for publication in saving.scan()] == [1]


def test_one_that_stands_still_holds_up_nobody_for_longer_than_a_minute(
    execution: Execution, holder: subprocess.Popen[bytes]
) -> None:
    now = [0.0]
    Path(execution.folder, "c-1").write_text("x")
    saving = Saving(execution, lambda: now[0])
    steps = []
    for now[0] in (0.0, 59.0, 60.0):
        steps.append([publication.step for publication in saving.scan()])

    assert steps == [[], [], [1]]


def test_the_last_look_waits_for_who_has_the_turn(execution: Execution, holder: subprocess.Popen[bytes]) -> None:
    Path(execution.folder, "c-1").write_text("x")
    saving = Saving(execution)
    assert saving.scan() == []
    threading.Timer(0.2, holder.kill).start()

    assert [publication.step for publication in saving.scan(last=True)] == [1]
    assert holder.poll() is not None


def test_who_comes_second_with_a_save_does_not_give_it_a_later_number(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file system without locks, one that has found both saves, and another that publishes them before it begins
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    for name in ("c-1", "c-2"):
        Path(execution.folder, name).write_text(name)
    slow, fast = Saving(execution), Saving(execution)
    real = LineageRoot.publish
    published: list[Any] = []

    def publish(self: LineageRoot, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(LineageRoot, "publish", real)
        published.extend(fast.scan())
        return self.publish(*arguments, **options)

    monkeypatch.setattr(LineageRoot, "publish", publish)
    # when
    late = slow.scan()
    # then
    assert [publication.path.rpartition("/")[2] for publication in published] == ["c-1", "c-2"]
    assert late == []
    assert [publication.step for publication in execution.root.publications()] == [1, 2]
    assert slow.scan() == []
    assert execution.root.journal(execution.attempt).entries() == []


def test_a_manifest_is_read_once(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    saving = Saving(execution)
    for number in (1, 2, 3):
        Path(execution.folder, f"c-{number}").write_text("x")
        saving.scan()
    ledger = type(execution.root.store.ledger("pub"))
    real, read = ledger.read, []

    def note(self: Any, name: str) -> bytes:
        read.append(name)
        return real(self, name)

    monkeypatch.setattr(ledger, "read", note)
    Path(execution.folder, "c-4").write_text("x")
    saving.scan()

    assert len([name for name in read if name.endswith(".json")]) <= 1
