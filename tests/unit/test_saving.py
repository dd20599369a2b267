"""Two processes of one execution that find the same saves agree on one number for each."""

from __future__ import annotations

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


def test_who_comes_second_with_a_save_does_not_give_it_a_later_number(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given one that has found both saves, and another that publishes them before it begins
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
