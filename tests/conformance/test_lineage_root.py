"""Claim, start, publish and journal in a lineage's root, on every store."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest

from prefect_dispatch.errors import (
    Barred,
    DuplicateExecution,
    MalformedDocument,
    MalformedName,
    NotDurable,
    StoreError,
    StoreUnreachable,
    UnknownFormat,
    Unpublishable,
    UsageError,
)
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, decode_part, encode_part, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3 import S3Store


class TestPrepare:
    def test_the_first_binds_the_root_and_a_second_finds_it_bound(self, bench, root):
        root.prepare("record-1", "digits")
        root.require()
        document = json.loads(bench.read("format.json"))
        assert {name: document[name] for name in ("format", "record", "lineage")} == {
            "format": 1,
            "record": "record-1",
            "lineage": "digits",
        }

    def test_another_record_or_lineage_is_refused_by_name(self, root):
        with pytest.raises(UnknownFormat, match=r"record-1.*record-2"):
            root.prepare("record-2")
        with pytest.raises(UnknownFormat, match=r"digits.*letters"):
            root.prepare("record-1", "letters")

    def test_a_run_by_hand_takes_any_root(self, root):
        root.prepare("")

    def test_a_newer_format_is_refused(self, bench):
        bench.write("format.json", b'{"format": 2, "record": "", "lineage": ""}')
        with pytest.raises(UnknownFormat, match="format 2"):
            LineageRoot(bench.store).prepare("")
        with pytest.raises(UnknownFormat):
            LineageRoot(bench.store).require()

    def test_a_cut_off_document_is_refused(self, bench):
        bench.write("format.json", b'{"format": 1, "rec')
        with pytest.raises(MalformedDocument, match=r"format\.json"):
            LineageRoot(bench.store).prepare("")

    def test_a_folder_that_is_no_root_is_said_to_be_none_and_stays_as_it_was(self, bench):
        before = bench.store.folders("")
        with pytest.raises(StoreUnreachable, match=r"format\.json"):
            LineageRoot(bench.store).require()
        assert bench.store.folders("") == before


class TestClaim:
    def test_an_epoch_is_claimed_once(self, root, begin):
        first = begin()
        with pytest.raises(DuplicateExecution, match=rf"g0n1r0.*claimed already, by {first.attempt}"):
            root.claim(first.epoch, attempt_of(new_token(), 0), "record-1", "run-2")

    def test_of_many_claims_of_one_epoch_one_succeeds(self, root):
        start = threading.Barrier(16)

        def claim(number: int) -> bool:
            start.wait(timeout=30)
            try:
                root.claim(Epoch(0, 1, 0), attempt_of(new_token(), 0), "record-1", f"run-{number}")
            except DuplicateExecution:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(claim, range(16))) == 1

    def test_who_comes_after_a_later_one_has_started_is_refused_and_claims_nothing(self, root, bench, begin):
        later = begin(0, 2)
        with pytest.raises(DuplicateExecution, match=rf"g0n1r0.*{later.attempt}"):
            begin(0, 1)
        assert bench.store.ledger("claims").names() == [later.epoch.digits]

    def test_a_later_claim_without_a_start_does_not_count(self, root, begin):
        root.claim(Epoch(0, 2, 0), attempt_of(new_token(), 0), "record-1", "run-1")
        begin(0, 1)

    def test_a_later_claim_whose_start_is_of_another_epoch_does_not_count(self, root, begin):
        first = begin(0, 1, 0)
        root.claim(Epoch(0, 3, 0), first.attempt, "record-1", "forged")
        begin(0, 2)

    def test_a_later_generation_does_not_count(self, begin):
        begin(1, 1)
        begin(0, 7)

    def test_an_earlier_one_does_not_count(self, begin):
        begin(0, 1)
        begin(0, 1, 1)
        begin(1, 1)

    @pytest.mark.parametrize(
        "name", ["1", "00000000000001000000.json", "0000000000000100000x", f"{9_223_372 * 10**12:020d}", "0" * 20]
    )
    def test_a_malformed_claim_is_named(self, root, bench, name):
        bench.write(f"claims/{name}", b"{}")
        with pytest.raises(MalformedName, match=re.escape(f"claims/{name}")):
            root.claim(Epoch(0, 1, 0), attempt_of(new_token(), 0), "record-1", "run-1")

    def test_no_attempt_is_refused(self, root):
        with pytest.raises(MalformedName, match="UPPER"):
            root.claim(Epoch(0, 1, 0), "UPPER-0", "record-1", "run-1")


class TestStart:
    def test_it_says_what_was_given_and_makes_the_folder(self, root, bench, begin):
        execution = begin(0, 1, seed="7")
        started = root.started(execution.attempt)
        assert (started.epoch, started.identity) == (execution.epoch, {"seed": "7"})
        assert started.details == {"host": "node1"}
        # A bucket has no folders; a program's own is on its machine then.
        made = [] if isinstance(bench.store, S3Store) else [execution.attempt]
        assert bench.store.folders("exec") == made

    def test_an_attempt_starts_once(self, root, begin):
        execution = begin()
        with pytest.raises(DuplicateExecution, match=execution.attempt):
            root.start(execution.epoch, execution.attempt, {})

    def test_one_that_has_not_started_says_nothing(self, root):
        assert root.started(attempt_of(new_token(), 0)) is None


class TestPublish:
    def test_a_save_gets_its_name_and_its_manifest(self, root, bench, begin):
        execution = begin(0, 1, seed="7")
        publication = execution.save("step-40", 40, b"weights", state="epoch 3")
        assert publication == Publication(execution.epoch, 40, f"{execution.folder}/step-40")
        assert root.publications() == [publication]
        (name,) = bench.store.ledger(f"meta/{execution.attempt}/saves").names()
        manifest = json.loads(bench.read(f"meta/{execution.attempt}/saves/{name}"))
        assert (manifest["state"], manifest["identity"]) == ("epoch 3", {"seed": "7"})
        assert [(file["path"], file["size"]) for file in manifest["files"]] == [("model.bin", 7)]

    def test_the_same_again_is_success_once(self, root, begin):
        execution = begin()
        first = execution.save("step-1", 1)
        assert execution.publish(first.path, 1) == first
        assert root.publications() == [first]

    def test_publications_are_ordered_by_epoch_step_and_path(self, root, begin):
        old, new = begin(0, 1), begin(0, 2)
        saved = [new.save("b", 9), new.save("é", 9), new.save("a", 100), old.save("z", 9000)]
        assert root.publications() == [saved[3], saved[0], saved[1], saved[2]]

    @pytest.mark.parametrize(
        "name",
        [
            "a b",
            "[x]",
            'it\'s "so"',
            "two\nlines",
            unicodedata.normalize("NFC", "é"),
            unicodedata.normalize("NFD", "é"),
            "-dash",
            ".dot",
        ],
    )
    def test_any_name_is_published_and_resumed_from(self, root, begin, name):
        publication = begin(0, 1).save(name, 1)
        assert root.publications() == [publication]
        assert root.latest().publication == publication

    def test_a_path_of_133_bytes_fits_and_one_of_134_does_not(self, root, begin):
        execution = begin()
        room = 133 - len(execution.folder) - 1
        publication = execution.save("é" * (room // 2) + "x" * (room % 2), 1)
        assert len(publication.path.encode()) == 133
        with pytest.raises(Unpublishable, match=r"134 bytes.*at most 133"):
            execution.save("x" * (room + 1), 2)
        assert root.publications() == [publication]

    def test_a_save_outside_this_executions_folder_is_refused(self, root, bench, begin):
        old, new = begin(0, 1), begin(0, 2)
        bench.write(f"{old.folder}/step-1/model.bin")
        bench.write("elsewhere/model.bin")
        for path in (
            f"{old.folder}/step-1",
            "elsewhere",
            new.folder,
            f"{new.folder}/../{old.attempt}/step-1",
            f"/{new.folder}/step-1",
            f"{new.folder}2/step-1",
            f"meta/{new.attempt}",
        ):
            with pytest.raises(Unpublishable, match=re.escape(path)):
                new.publish(path, 1)
        assert root.publications() == []

    def test_what_is_not_there_or_empty_is_refused(self, root, bench, begin):
        execution = begin()
        bench.store.make_folder(f"{execution.folder}/17")
        for name in ("16", "17"):
            with pytest.raises(Unpublishable, match=name):
                execution.publish(f"{execution.folder}/{name}", 1)
        assert root.publications() == []

    @pytest.mark.parametrize("step", [-1, 2**63, True, "1", 1.0])
    def test_a_step_out_of_range_is_refused(self, root, bench, begin, step):
        execution = begin()
        bench.write(f"{execution.folder}/s")
        with pytest.raises(UsageError, match="step"):
            execution.publish(f"{execution.folder}/s", step)

    @pytest.mark.parametrize("state", ["é" * 32 * 1024 + "x", "nul\0", "\udc80"])
    def test_a_state_that_cannot_be_kept_is_refused_whole(self, root, begin, state):
        with pytest.raises(Unpublishable, match="state"):
            begin().save("s", 1, state=state)
        assert root.publications() == []

    def test_a_state_of_64_kib_is_kept_whole(self, root, begin):
        state = "é" * 32 * 1024
        begin().save("s", 1, state=state)
        assert root.latest().manifest.state == state

    def test_a_path_that_was_another_step_needs_a_snapshot(self, root, bench, begin):
        execution = begin()
        first = execution.save("last", 1, b"one")
        bench.write(f"{execution.folder}/last/model.bin", b"two!")
        with pytest.raises(Unpublishable, match=r"step 1.*snapshot"):
            execution.publish(first.path, 2)
        assert root.publications() == [first]

    def test_a_path_whose_first_publishing_failed_may_become_another_step(self, root, bench, begin, monkeypatch):
        execution = begin()
        bench.write(f"{execution.folder}/last/model.bin")
        with monkeypatch.context() as patch:
            failing_ledger(patch, bench, "pub", StoreError("no"))
            with pytest.raises(StoreError):
                execution.publish(f"{execution.folder}/last", 1)
        assert execution.publish(f"{execution.folder}/last", 2) in root.publications()

    def test_a_snapshot_keeps_its_bytes_when_the_program_writes_over_its_save(self, root, bench, begin):
        execution = begin()
        paths = []
        for step in (1, 2, 3):
            bench.write(f"{execution.folder}/last.pt", b"step %d" % step)
            paths.append(execution.publish(f"{execution.folder}/last.pt", step, snapshot=True).path)
        bench.write(f"{execution.folder}/last.pt", b"step 4, half")
        assert paths == [f"meta/{execution.attempt}/snap/{number:020d}/last.pt" for number in (1, 2, 3)]
        assert [bench.read(path) for path in paths] == [b"step 1", b"step 2", b"step 3"]
        assert root.latest().publication.path == paths[-1]

    @pytest.mark.parametrize(("size", "name"), [(83, None), (84, "save"), (109, "save")])
    def test_a_copy_has_the_saves_own_name_where_the_path_has_room_and_the_import_always(
        self, root, bench, begin, size, name
    ):
        old, new = begin(0, 1), begin(0, 2)
        own = "x" * size
        bench.write(f"{old.folder}/{own}", b"weights")
        publication = old.publish(f"{old.folder}/{own}", 1, snapshot=True)
        assert publication.path.rpartition("/")[2] == (name or own)
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        assert pin.path == f"meta/{new.attempt}/resume/{own}"
        assert bench.read(pin.path) == b"weights"

    def test_a_manifest_says_where_the_program_wrote_the_save(self, root, bench, begin):
        execution = begin()
        for step, options in ((1, {}), (2, {"snapshot": True})):
            execution.save(f"s{step}", step, **options)
        sources = [
            json.loads(bench.read(f"meta/{execution.attempt}/saves/{name}"))["source"]
            for name in bench.store.ledger(f"meta/{execution.attempt}/saves").names()
        ]
        assert sources == [f"{execution.folder}/s1", f"{execution.folder}/s2"]

    def test_numbers_never_collide_and_always_rise_whoever_publishes(self, root, bench, begin):
        execution = begin()
        for name in range(12):
            bench.write(f"{execution.folder}/{name}", b"x" * (name + 1))
        with ThreadPoolExecutor(4) as pool:
            named = list(
                pool.map(lambda name: execution.publish(f"{execution.folder}/{name}", None, snapshot=True), range(12))
            )
        state = root.publish_state(execution.epoch, execution.attempt, "3,2,3")
        assert sorted(publication.step for publication in named) == list(range(1, 13))
        assert (state.step, bench.read(state.path)) == (13, b"3,2,3")
        assert root.latest().manifest.state == "3,2,3"
        assert all(int(publication.path.split("/")[3]) == publication.step for publication in root.publications())

    def test_a_save_without_a_step_needs_a_snapshot(self, bench, begin):
        execution = begin()
        bench.write(f"{execution.folder}/s")
        with pytest.raises(UsageError, match="no step"):
            execution.publish(f"{execution.folder}/s", None)

    def test_of_many_copies_of_one_step_the_last_is_the_latest(self, root, bench, begin):
        execution = begin()
        for number in range(11):
            bench.write(f"{execution.folder}/last", b"%02d" % number)
            execution.publish(f"{execution.folder}/last", 7, snapshot=True)
        assert bench.read(root.latest().publication.path) == b"10"

    def test_a_save_that_is_whole_no_more_gets_no_name(self, root, begin):
        with pytest.raises(Unpublishable, match="changed"):
            begin().save("s", 1, still_whole=lambda: False)
        assert root.publications() == []

    def test_a_save_that_changes_while_it_is_published_gets_no_name(self, root, bench, begin, monkeypatch):
        execution = begin()
        bench.write(f"{execution.folder}/s/model.bin", b"123")
        real = bench.store.files

        def files(path):
            listed = real(path)
            bench.write(f"{path}/model.bin", b"12345")
            return listed

        monkeypatch.setattr(bench.store, "files", files)
        with pytest.raises(Unpublishable, match="changed"):
            execution.publish(f"{execution.folder}/s", 1)
        assert root.publications() == []

    @pytest.mark.parametrize("failing", ["sync", "saves", "pub"])
    def test_files_that_failed_to_reach_the_disk_bar_their_path_for_good(
        self, root, bench, begin, monkeypatch, failing
    ):
        execution = begin()
        whole = execution.save("step-1", 1)
        with monkeypatch.context() as patch:
            if failing == "sync":
                patch.setattr(bench.store, "sync", raising(NotDurable("Input/output error")))
            else:
                folder = f"meta/{execution.attempt}/saves" if failing == "saves" else "pub"
                failing_ledger(patch, bench, folder, NotDurable("Input/output error"))
            with pytest.raises(Barred, match=r"step-2.*Input/output error"):
                execution.save("step-2", 2)
        with pytest.raises(Barred, match="step-2"):
            execution.publish(f"{execution.folder}/step-2", 2)
        assert root.latest().publication == whole
        (entry,) = [entry for entry in root.journal(execution.attempt).entries() if entry.kind == "barred"]
        assert entry.fields["path"] == f"{execution.folder}/step-2"
        (name,) = bench.store.ledger(f"meta/{execution.attempt}/barred").names()
        assert decode_part(name) == f"{execution.folder}/step-2"

    def test_a_published_save_that_is_barred_later_is_passed_over(self, root, bench, begin, monkeypatch):
        execution = begin()
        whole, shaky = execution.save("step-1", 1), execution.save("step-2", 2)
        with monkeypatch.context() as patch:
            patch.setattr(bench.store, "sync", raising(NotDurable("Input/output error")))
            with pytest.raises(Barred):
                execution.publish(shaky.path, 2)
        resume = root.latest()
        assert resume.publication == whole
        assert [(entry.publication, entry.forged) for entry in resume.passed_over] == [(shaky, False)]
        assert "reach the disk" in resume.passed_over[0].why

    def test_a_full_disk_is_an_error_and_the_save_can_be_published_later(self, root, bench, begin, monkeypatch):
        execution = begin()
        with monkeypatch.context() as patch:
            failing_ledger(patch, bench, f"meta/{execution.attempt}/saves", StoreError(os.strerror(errno.ENOSPC)))
            with pytest.raises(StoreError, match="No space"):
                execution.save("step-1", 1)
        assert root.publications() == []
        assert execution.publish(f"{execution.folder}/step-1", 1) == root.latest().publication

    def test_of_many_publishing_at_once_all_succeed(self, root, bench, begin):
        execution = begin()
        for step in range(8):
            bench.write(f"{execution.folder}/step-{step}/model.bin", b"x" * (step + 1))
        with ThreadPoolExecutor(8) as pool:
            jobs = [
                pool.submit(execution.publish, f"{execution.folder}/step-{number % 8}", number % 8)
                for number in range(16)
            ]
            assert len({job.result(timeout=60) for job in jobs}) == 8
        assert [publication.step for publication in root.publications()] == list(range(8))

    @pytest.mark.parametrize(
        "name",
        [
            "garbage",
            "0-0-AA",
            "x" * 41 + "-ME",
            f"{10**6:020d}-{1:020d}-ME7",
            f"{0:020d}-{1:020d}-{encode_part('exec/a')}",
            f"{10**6:020d}-{2**63:020d}-{encode_part('exec/a')}",
            f"{10**6:020d}-{1:020d}-{encode_part('exec/../a')}",
        ],
    )
    def test_a_malformed_publication_is_named(self, root, bench, begin, name):
        begin().save("step-1", 1)
        bench.write(f"pub/{name}", b"")
        for call in (root.publications, root.latest):
            with pytest.raises(MalformedName, match=re.escape(f"pub/{name}")):
                call()


class TestJournal:
    def test_entries_come_back_in_order(self, root):
        journal = root.journal("a")
        assert journal.entries() == []
        written = [journal.append("status", text=f"line {number}", at=number) for number in range(3)]
        assert journal.entries() == written
        assert [entry.seq for entry in written] == [1, 2, 3]
        assert journal.entries(after=2) == written[2:]
        assert journal.entries(limit=2) == written[1:]
        assert journal.entries(limit=0) == []

    def test_several_writers_lose_nothing(self, root):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: root.journal("a").append("status", number=number), range(40)))
        entries = root.journal("a").entries()
        assert [entry.seq for entry in entries] == list(range(1, 41))
        assert sorted(entry.fields["number"] for entry in entries) == list(range(40))

    @pytest.mark.parametrize("name", ["1.json", "x", f"{1:020d}", f"{0:021d}.json", f"{1:020d}.json.bak"])
    def test_a_malformed_name_is_named(self, root, bench, name):
        bench.write(f"meta/a/journal/{name}", b"{}")
        with pytest.raises(MalformedName, match=re.escape(name)):
            root.journal("a").entries()

    @pytest.mark.parametrize(
        "content",
        [b"", b"[]", b'{"format":1,"seq":2,"kind":"x"}', b'{"format":1,"seq":1,"kind":7}', b" " * 2_000_000],
    )
    def test_a_malformed_entry_is_named(self, root, bench, content):
        bench.write(f"meta/a/journal/{1:020d}.json", content)
        with pytest.raises(MalformedDocument, match=f"{1:020d}.json"):
            root.journal("a").entries()


def raising(error: Exception):
    def call(*arguments, **options):
        raise error

    return call


def failing_ledger(monkeypatch, bench, folder: str, error: Exception) -> None:
    """Let creation in one ledger of the store fail."""
    real = bench.store.ledger

    def ledger(asked: str):
        found = real(asked)
        if asked == folder:
            found.create = raising(error)
        return found

    monkeypatch.setattr(bench.store, "ledger", ledger)
