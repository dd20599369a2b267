"""A root that is away, and a workshop that is cleared, say nothing about the saves that are in a root."""

from __future__ import annotations

import shutil
import time

import pytest

from prefect_dispatch.errors import Absent, RootAbsent, StoreError, StoreUnreachable, UnknownFormat, UnusableCheckpoint
from prefect_dispatch.format.deadline import TotalDeadline
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores import posix_copy
from prefect_dispatch.stores.deadline import agree_on_deadline
from prefect_dispatch.stores.identity_reference import agree_on_reference
from prefect_dispatch.stores.layout import HOMES, STANDING
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


class TestRootThatIsAway:
    """What is in a root that is not there is not known: it is neither empty nor absent."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda store: store.ledger("names").names(),
            lambda store: store.ledger("names").unordered_names(),
            lambda store: store.ledger("names").strangers(),
            lambda store: store.ledger("names").read("one"),
            lambda store: store.ledger("names").create("two"),
            lambda store: store.ledger("names").create("two", b"2"),
            lambda store: store.ledger("names").remove("one"),
            lambda store: store.folders("exec"),
            lambda store: store.make_folder("exec/b"),
            lambda store: store.files("exec/a/save"),
            lambda store: store.difference("exec/a/save", (SavedFile("model", 1, 1),)),
            lambda store: store.sync("exec/a/save", (SavedFile("model", 1, 1),)),
            lambda store: store.copy("exec/a/save", "meta/b/resume/save", (SavedFile("model", 1, 1),)),
        ],
    )
    def test_every_question_is_answered_with_that_and_nothing_is_made(self, tmp_path, ask):
        # given a store that was used, and its root away
        store = PosixStore(tmp_path / "root")
        store.probe()
        store.ledger("names").create("one")
        (tmp_path / "root").rename(tmp_path / "away")
        # when it is asked, then it says so
        with pytest.raises(RootAbsent, match="mounted"):
            ask(store)
        assert not (tmp_path / "root").exists()

    def test_only_a_probe_that_may_makes_it(self, tmp_path):
        store = PosixStore(tmp_path / "root")
        with pytest.raises(StoreUnreachable):
            store.probe(make=False)
        assert not (tmp_path / "root").exists()
        store.probe()
        store.probe(make=False)

    def test_who_enters_a_root_that_was_prepared_makes_none(self, tmp_path):
        # given a root that was prepared, and is away when an execution begins
        root = LineageRoot(PosixStore(tmp_path / "root"))
        root.prepare("record-1", "digits")
        root.enter("record-1", "digits")
        (tmp_path / "root").rename(tmp_path / "away")
        # when it enters, then that is an outage, also where the folder below the mount is there
        with pytest.raises(StoreUnreachable):
            root.enter("record-1", "digits")
        assert not (tmp_path / "root").exists()
        (tmp_path / "root").mkdir()
        with pytest.raises(StoreUnreachable):
            root.enter("record-1", "digits")
        assert list((tmp_path / "root").iterdir()) == []

    def test_a_root_of_another_record_is_not_entered(self, tmp_path):
        root = LineageRoot(PosixStore(tmp_path / "root"))
        root.prepare("record-1", "digits")
        with pytest.raises(UnknownFormat, match="record-1"):
            root.enter("record-2", "digits")


ATTEMPT = "k3v7q2m5x4c6b7a2-0"
ASKED = {
    "claims": lambda root: root.claim(Epoch(0, 2, 0), "a3v7q2m5x4c6b7a2-0", "record-1", "run-2"),
    "pub": lambda root: root.latest(),
    "pruned": lambda root: root.latest(),
    "done": lambda root: root.completions(),
    "deadline": lambda root: agree_on_deadline(root.store, TotalDeadline("digits", 0, ATTEMPT, 1.0, 60.0, {})),
    "identity": lambda root: agree_on_reference(root.store, 0, ATTEMPT, {"seed": "1"}),
}
"""What would be decided wrongly, were the ledger taken for empty."""


class TestLedgersThatAreAway:
    """A ledger was made with its root. Where it is not there, it was moved away, and nobody takes it for empty."""

    @pytest.fixture
    def root(self, tmp_path):
        root = LineageRoot(PosixStore(tmp_path / "root"))
        root.prepare("record-1", "digits")
        root.claim(Epoch(0, 1, 0), ATTEMPT, "record-1", "run-1")
        root.start(Epoch(0, 1, 0), ATTEMPT, {})
        save = tmp_path / "root" / "exec" / ATTEMPT / "step-1"
        save.mkdir()
        (save / "model").write_bytes(b"weights")
        root.publish(Epoch(0, 1, 0), ATTEMPT, f"exec/{ATTEMPT}/step-1", 1)
        return root

    def test_each_of_them_is_asked_about(self):
        assert set(ASKED) == set(STANDING)

    @pytest.mark.parametrize("folder", STANDING)
    def test_what_depends_on_it_is_not_decided_and_none_is_made(self, root, tmp_path, folder):
        (tmp_path / "root" / folder).rename(tmp_path / "away")
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match=f"{folder} is not there.*moved away"):
                ASKED[folder](LineageRoot(PosixStore(tmp_path / "root")))
            # also where somebody makes the root ready once more, as runs by hand do
            root.prepare("record-1", "digits")
        assert not (tmp_path / "root" / folder).exists()
        # and once it is back, all is as it was
        (tmp_path / "away").rename(tmp_path / "root" / folder)
        ASKED[folder](root)
        assert root.latest().publication.step == 1

    @pytest.mark.parametrize("folder", HOMES)
    def test_saves_that_are_away_are_not_taken_for_rotated(self, root, tmp_path, folder):
        # given a save of a later execution, and the folder of all executions moved away as a whole
        second, later = "a3v7q2m5x4c6b7a2-0", Epoch(0, 2, 0)
        (tmp_path / "root" / folder).rename(tmp_path / "away")
        # then nothing is resumed from or begun, and none is made
        for ask in (
            root.latest,
            lambda: root.pin(later, second, ResumeChoice()),
            lambda: root.start(later, second, {}),
            lambda: root.publish(Epoch(0, 1, 0), ATTEMPT, f"exec/{ATTEMPT}/step-1", 1),
        ):
            with pytest.raises(StoreUnreachable, match=f"{folder} is not there.*moved away"):
                ask()
        root.prepare("record-1", "digits")
        assert not (tmp_path / "root" / folder).exists()
        assert folder in [fault.place for fault in root.check()]
        # and once it is back, all is as it was
        (tmp_path / "away").rename(tmp_path / "root" / folder)
        assert root.latest().publication.step == 1

    @pytest.mark.parametrize("folder", HOMES)
    def test_what_one_execution_left_may_be_removed_and_is_named(self, root, tmp_path, folder):
        # given an execution's folder that a person has removed to free space
        shutil.rmtree(tmp_path / "root" / folder / ATTEMPT)
        # then its saves are passed over, by name
        with pytest.raises(
            UnusableCheckpoint, match="model is gone" if folder == "exec" else f"was meta/{ATTEMPT} removed"
        ):
            root.latest()

    def test_an_old_writer_begins_no_other_one(self, root, tmp_path):
        (tmp_path / "root" / "pub").rename(tmp_path / "away")
        (tmp_path / "root" / "exec" / ATTEMPT / "step-1").rename(tmp_path / "root" / "exec" / ATTEMPT / "step-2")
        with pytest.raises(StoreUnreachable, match="moved away"):
            root.publish(Epoch(0, 1, 0), ATTEMPT, f"exec/{ATTEMPT}/step-2", 2)
        assert not (tmp_path / "root" / "pub").exists()
        assert [fault.place for fault in root.check()] == ["pub"]


def test_what_is_lost_of_a_copy_is_not_lost_of_its_source(tmp_path, monkeypatch):
    # given a whole save, and somebody who clears tmp/ while it is copied
    store = PosixStore(tmp_path)
    store.probe()
    save = tmp_path / "exec" / "a" / "save"
    save.mkdir(parents=True)
    for name in ("model", "optimizer"):
        (save / name).write_bytes(b"123")
    files = store.files("exec/a/save")
    real = posix_copy.copy_bytes

    def clear(*given):
        real(*given)
        shutil.rmtree(tmp_path / "tmp")

    monkeypatch.setattr(posix_copy, "copy_bytes", clear)
    monkeypatch.setattr(posix_copy, "_reflinked", lambda *_: False)
    # when it is copied, then the copy has failed, and nobody may take the save for gone
    with pytest.raises(StoreError) as failure:
        store.copy("exec/a/save", "meta/b/resume/save", files)
    assert not isinstance(failure.value, Absent)


def test_a_host_whose_clock_is_ahead_sweeps_nothing_that_is_new(tmp_path, monkeypatch):
    store = PosixStore(tmp_path)
    store.probe()
    (tmp_path / "tmp" / "somebodys.copy").write_bytes(b"being written")
    monkeypatch.setattr(time, "time", lambda: 4e9)
    store.probe()
    assert (tmp_path / "tmp" / "somebodys.copy").exists()
