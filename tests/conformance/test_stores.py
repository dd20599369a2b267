"""Every store keeps the contract of stores/port.py: ledgers and the files of saves."""

from __future__ import annotations

import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from prefect_dispatch.errors import Absent, Exists, StoreError, Unpublishable
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.s3 import S3Store

NAMES = [
    "a b",
    "[x]*?",
    'it\'s "so"',
    "two\nlines",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "-dash",
    ".dot",
    "x" * 255,
]


class TestLedger:
    def test_a_created_name_has_its_whole_content(self, bench):
        ledger = bench.store.ledger("meta/a/journal")
        ledger.create("1.json", b"x" * 3_000_000)
        assert ledger.read("1.json") == b"x" * 3_000_000

    def test_a_name_without_content_is_there_and_empty(self, bench):
        ledger = bench.store.ledger("names")
        ledger.create("one")
        assert ledger.names() == ["one"]
        assert ledger.read("one") == b""

    @pytest.mark.parametrize("content", [b"", b"second"])
    def test_a_name_is_created_once_and_keeps_what_it_had(self, bench, content):
        ledger = bench.store.ledger("names")
        ledger.create("one", b"first")
        with pytest.raises(Exists, match="one"):
            ledger.create("one", content)
        assert ledger.read("one") == b"first"

    def test_the_empty_folder_is_the_root(self, bench):
        bench.store.ledger("").create("format.json", b"{}")
        assert bench.read("format.json") == b"{}"
        assert bench.store.ledger("").names() == ["format.json"]

    def test_what_is_not_there_is_absent_and_lists_as_nothing(self, bench):
        ledger = bench.store.ledger("names")
        with pytest.raises(Absent, match="names"):
            ledger.read("one")
        assert ledger.names() == []
        ledger.create("one")
        with pytest.raises(Absent, match="two"):
            ledger.read("two")

    def test_any_name_that_a_file_can_have_comes_back_as_it_was(self, bench):
        ledger = bench.store.ledger("odd names/[x]\n")
        for name in NAMES:
            ledger.create(name, name.encode())
        assert ledger.names() == sorted(NAMES, key=lambda name: name.encode())
        assert [ledger.read(name) for name in NAMES] == [name.encode() for name in NAMES]

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 256, "\udcff"])
    def test_a_name_that_no_file_can_have_is_refused(self, bench, name):
        ledger = bench.store.ledger("names")
        for call in (ledger.create, ledger.read, ledger.remove):
            with pytest.raises(StoreError) as refusal:
                call(name)
            assert not isinstance(refusal.value, (Absent, Exists))

    @pytest.mark.parametrize("folder", ["/etc", "../up", "a//b", "a/./b", "a\0"])
    def test_a_folder_outside_the_root_is_refused(self, bench, folder):
        with pytest.raises(StoreError):
            bench.store.ledger(folder)

    def test_names_come_after_the_one_given_sorted_by_their_bytes(self, bench):
        ledger = bench.store.ledger("names")
        for name in ("b", "a", "é", "B", "\U0001f600", "\uffff"):
            ledger.create(name)
        assert ledger.names() == ["B", "a", "b", "é", "\uffff", "\U0001f600"]
        assert ledger.names(after="a") == ["b", "é", "\uffff", "\U0001f600"]
        assert ledger.names(after="aa") == ["b", "é", "\uffff", "\U0001f600"]

    def test_a_listing_holds_names_and_no_folders(self, bench):
        bench.store.ledger("meta").create("file")
        bench.store.ledger("meta/folder").create("inner")
        assert bench.store.ledger("meta").names() == ["file"]
        assert bench.store.folders("meta") == ["folder"]
        assert bench.store.folders("nothing") == []

    def test_a_name_is_removed_and_may_be_created_again(self, bench):
        ledger = bench.store.ledger("open")
        ledger.remove("one")
        ledger.create("one", b"1")
        ledger.remove("one")
        ledger.remove("one")
        assert ledger.names() == []
        ledger.create("one", b"2")
        assert ledger.read("one") == b"2"

    def test_of_many_writers_of_one_name_one_succeeds_and_its_content_is_whole(self, bench):
        start = threading.Barrier(32)

        def write(number: int) -> bool:
            ledger = bench.store.ledger("documents")
            start.wait(timeout=30)
            try:
                ledger.create("1.json", bytes([number]) * 10_000)
            except Exists:
                return False
            return True

        with ThreadPoolExecutor(32) as pool:
            won = [number for number, success in enumerate(pool.map(write, range(32))) if success]
        assert len(won) == 1
        assert bench.store.ledger("documents").read("1.json") == bytes(won) * 10_000

    def test_a_listing_under_a_writer_has_everything_from_before_and_nothing_half_written(self, bench):
        ledger = bench.store.ledger("documents")
        for number in range(50):
            ledger.create(f"{number:03d}", b"whole")
        stop = threading.Event()

        def write() -> None:
            number = 50
            while not stop.is_set() and number < 1000:
                ledger.create(f"{number:03d}", b"whole")
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(20):
                names = ledger.names()
                assert names[:50] == [f"{number:03d}" for number in range(50)]
                assert {ledger.read(name) for name in names[-3:]} == {b"whole"}
        finally:
            stop.set()
            writer.join(timeout=30)


class TestDocuments:
    def test_ones_own_document_is_ones_own_success(self, bench):
        ledger = bench.store.ledger("documents")
        first = create_once(ledger, "1.json", {"kind": "opened"}, nonce="mine")
        assert create_once(ledger, "1.json", {"kind": "opened"}, nonce="mine") == first
        assert read_document(ledger, "1.json", "it") == {"format": 1, "kind": "opened", "nonce": "mine"}

    def test_anothers_document_is_not(self, bench):
        ledger = bench.store.ledger("documents")
        create_once(ledger, "1.json", {"kind": "opened"})
        with pytest.raises(Exists):
            create_once(ledger, "1.json", {"kind": "opened"})

    def test_what_is_too_long_is_read_only_so_far_that_it_shows(self, bench):
        bench.write("documents/1.json", b" " * (MAX_DOCUMENT_BYTES + 1000))
        assert len(bench.store.ledger("documents").read("1.json")) == MAX_DOCUMENT_BYTES + 1


class TestFiles:
    def test_every_file_of_a_save_is_listed_dot_files_too(self, bench):
        bench.write("exec/a/save/z.bin", b"12345")
        bench.write("exec/a/save/.hidden/.state", b"1")
        bench.write("exec/a/save/b/c", b"")
        bench.write("exec/a/save2/other", b"")
        files = bench.store.files("exec/a/save")
        assert [(file.path, file.size, file.link) for file in files] == [
            (".hidden/.state", 1, None),
            ("b/c", 0, None),
            ("z.bin", 5, None),
        ]

    def test_a_save_may_be_one_file(self, bench):
        bench.write("exec/a/save.pt", b"12345")
        assert [(file.path, file.size) for file in bench.store.files("exec/a/save.pt")] == [("", 5)]

    @pytest.mark.parametrize("path", ["exec/a/none", "exec/none/save", "exec/a/file/below"])
    def test_a_save_that_is_not_there(self, bench, path):
        bench.write("exec/a/file")
        with pytest.raises((Absent, Unpublishable)):
            bench.store.files(path)

    def test_an_empty_folder_has_no_files(self, bench):
        bench.store.make_folder("exec/a/17")
        bench.store.make_folder("exec/a/17")
        if isinstance(bench.store, S3Store):
            # A bucket has no folders, so that an empty one is none.
            with pytest.raises(Absent):
                bench.store.files("exec/a/17")
        else:
            assert bench.store.files("exec/a/17") == ()

    @pytest.mark.parametrize("path", ["", "..", "/etc/passwd", "exec/../../x"])
    def test_a_path_outside_the_root_is_refused(self, bench, path):
        for call in (bench.store.files, bench.store.make_folder if path else bench.store.files):
            with pytest.raises(StoreError):
                call(path)


class TestDifference:
    def test_a_whole_save_has_none_whatever_else_lies_in_it(self, bench):
        bench.write("exec/a/save/model", b"123")
        files = bench.store.files("exec/a/save")
        bench.write("exec/a/save/later")
        assert bench.store.difference("exec/a/save", files) is None

    def test_a_file_that_is_gone_or_has_another_size_is_named(self, bench):
        bench.write("exec/a/save/model", b"123")
        bench.write("exec/a/save/deep/state", b"123")
        files = bench.store.files("exec/a/save")
        bench.write("exec/a/save/model", b"")
        assert bench.store.difference("exec/a/save", files) == "model has 0 bytes, not 3"
        bench.write("exec/a/save/model", b"321")
        bench.delete("exec/a/save/deep")
        assert bench.store.difference("exec/a/save", files) == "deep/state is gone"
        bench.delete("exec/a/save")
        assert "is gone" in bench.store.difference("exec/a/save", files)

    @pytest.mark.parametrize("path", ["exec/a/save", "exec/a/save/.complete"], ids=["folder", "file"])
    def test_a_short_file_of_the_saves_own_folder_is_known_by_its_bytes(self, bench, path):
        bench.write("exec/a/save/.complete", b"10")
        files = bench.store.files(path)
        bench.write("exec/a/save/.complete", b"10")
        assert bench.store.difference(path, files) is None
        bench.write("exec/a/save/.complete", b"20")
        assert "has other bytes" in bench.store.difference(path, files)
        assert bench.store.difference(path, tuple(replace(file, digest=None) for file in files)) is None

    def test_sync_wants_the_files_as_they_were_listed(self, bench):
        bench.write("exec/a/save/model", b"123")
        files = bench.store.files("exec/a/save")
        bench.store.sync("exec/a/save", files)
        bench.write("exec/a/save/model", b"1234")
        with pytest.raises(Absent, match="model"):
            bench.store.sync("exec/a/save", files)
        bench.delete("exec/a/save")
        with pytest.raises(Absent):
            bench.store.sync("exec/a/save", files)


class TestCopy:
    def test_a_copy_has_the_bytes_and_times_and_a_life_of_its_own(self, bench):
        bench.write("exec/a/save/model", b"123")
        bench.write("exec/a/save/.deep/state", b"4567")
        files = bench.store.files("exec/a/save")
        bench.store.copy("exec/a/save", "meta/b/resume/save", files)
        bench.write("exec/a/save/model", b"overwritten")
        assert bench.store.files("meta/b/resume/save") == files
        assert bench.read("meta/b/resume/save/model") == b"123"
        assert bench.read("meta/b/resume/save/.deep/state") == b"4567"

    def test_a_single_file_is_copied_as_one(self, bench):
        bench.write("exec/a/save.pt", b"123")
        files = bench.store.files("exec/a/save.pt")
        bench.store.copy("exec/a/save.pt", "meta/b/resume/save.pt", files)
        assert bench.store.files("meta/b/resume/save.pt") == files

    @pytest.mark.parametrize("source", ["exec/a/save", "exec/a/save.pt"])
    @pytest.mark.parametrize("taken", ["target", "target/inner"])
    def test_a_target_that_is_there_is_left_alone(self, bench, source, taken):
        bench.write("exec/a/save/model", b"123")
        bench.write("exec/a/save.pt", b"123")
        bench.write(f"meta/{taken}", b"mine")
        with pytest.raises(Exists, match="meta/target"):
            bench.store.copy(source, "meta/target", bench.store.files(source))
        assert bench.read(f"meta/{taken}") == b"mine"

    def test_a_source_that_has_changed_leaves_no_target(self, bench):
        bench.write("exec/a/save/model", b"123")
        bench.write("exec/a/save/state", b"123")
        files = bench.store.files("exec/a/save")
        bench.write("exec/a/save/state", b"1")
        with pytest.raises(Absent, match="state"):
            bench.store.copy("exec/a/save", "meta/target", files)
        bench.delete("exec/a/save")
        with pytest.raises(Absent):
            bench.store.copy("exec/a/save", "meta/target", files)
        assert bench.store.folders("meta") == []
        assert bench.store.folders("tmp") == []
        assert bench.store.ledger("tmp").names() == []


def test_a_probe_leaves_nothing_but_the_root(bench):
    bench.store.probe()
    bench.store.probe()
    assert bench.store.ledger("").names() == []
    assert bench.store.ledger("tmp").names() == []
    assert set(bench.store.folders("")) <= {"tmp"}
