"""A root that is away, and a workshop that is cleared, say nothing about the saves that are in a root."""

from __future__ import annotations

import shutil
import time

import pytest

from prefect_dispatch.errors import Absent, RootAbsent, StoreError, StoreUnreachable, UnknownFormat
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores import posix_copy
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


class TestRootThatIsAway:
    """What is in a root that is not there is not known: it is neither empty nor absent."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda store: store.ledger("pub").names(),
            lambda store: store.ledger("pub").unordered_names(),
            lambda store: store.ledger("pub").strangers(),
            lambda store: store.ledger("pub").read("one"),
            lambda store: store.ledger("pub").create("two"),
            lambda store: store.ledger("pub").create("two", b"2"),
            lambda store: store.ledger("pub").remove("one"),
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
        store.ledger("pub").create("one")
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
