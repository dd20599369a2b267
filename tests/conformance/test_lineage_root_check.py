"""The check of a lineage's root: silent about a sound one, and naming each fault of another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, encode_part, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.layout import STANDING
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore


@pytest.fixture
def execution(root, begin):
    """A sound root: two executions, saves, a snapshot, a pin and a journal; returns the second one."""
    first, second = begin(0, 1), begin(0, 2)
    first.save("checkpoint-1", 1)
    second.pin = root.pin(second.epoch, second.attempt, ResumeChoice())
    second.save("checkpoint-2", 2)
    second.publish(f"{second.folder}/checkpoint-2", 3, snapshot=True)
    root.journal(second.attempt).append("status", text="half way")
    return second


def faults(root, severity: Severity = Severity.FAULT) -> list[str]:
    return [str(fault) for fault in root.check() if fault.severity is severity]


def test_a_sound_root_has_no_fault(root, execution):
    assert root.check() == []


def test_a_save_rotated_away_below_a_whole_one_is_not_worth_a_word(root, bench, execution):
    bench.delete(root.publications()[0].path)
    assert root.check() == []


def test_the_newest_saves_that_are_whole_no_more_are_notes(root, bench, execution):
    for publication in root.publications()[1:]:
        bench.delete(publication.path)
    notes = faults(root, Severity.NOTE)
    assert [f"step {step}" in note for step, note in zip((3, 2), notes, strict=True)] == [True, True]
    bench.delete(root.publications()[0].path)
    assert "no published save is whole" in faults(root, Severity.NOTE)[-1]
    assert faults(root) == []


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("pub/garbage", "pub/garbage"),
        ("claims/1", "claims/1"),
        ("pruned/garbage", "pruned/garbage"),
        ("meta/{attempt}/saves/notes.txt", "saves/notes.txt"),
        ("meta/{attempt}/journal/1.json", "journal/1.json"),
        ("meta/{attempt}/barred/x", "barred: 'x'"),
        ("meta/UPPER/started.json", "meta/UPPER"),
        ("exec/UPPER/file", "exec/UPPER"),
        ("pub/folder/file", "pub/folder"),
        ("meta/{attempt}/numbers/1", "numbers/1"),
        ("meta/{attempt}/numbers/folder/file", "numbers/folder"),
        ("done/folder/file", "done/folder"),
    ],
)
def test_a_malformed_name_is_named_once(root, bench, execution, place, named):
    bench.write(place.format(attempt=execution.attempt), b"{}")
    (fault,) = faults(root)
    assert named in fault
    assert faults(root, Severity.NOTE) == []


@pytest.mark.parametrize(
    "place",
    [
        "format.json",
        "claims/{epoch}",
        "meta/{attempt}/started.json",
        "meta/{attempt}/resume.json",
        "meta/{attempt}/saves/{manifest}",
        "meta/{attempt}/journal/00000000000000000001.json",
    ],
)
@pytest.mark.parametrize("content", [b"", b'{"format":1}'])
def test_a_cut_off_document_is_named(root, bench, execution, place, content):
    manifest = bench.store.ledger(f"meta/{execution.attempt}/saves").names()[0]
    place = place.format(attempt=execution.attempt, epoch=execution.epoch.digits, manifest=manifest)
    bench.write(place, content)
    assert any(place in fault for fault in faults(root))


def test_a_forged_epoch_is_a_fault(root, bench, execution):
    forged = Publication(Epoch(5, 1, 0), 9, f"{execution.folder}/checkpoint-2")
    bench.write(f"pub/{forged.name}", b"")
    (fault,) = faults(root)
    assert forged.name in fault and "g0n2r0" in fault


def test_a_publication_without_a_manifest_is_a_fault(root, bench, execution):
    lone = Publication(execution.epoch, 9, f"{execution.folder}/checkpoint-2")
    bench.write(f"pub/{lone.name}", b"")
    (fault,) = faults(root)
    assert lone.name in fault and "no manifest" in fault


def test_a_start_without_a_claim_is_a_fault(root, bench, execution):
    bench.delete(f"claims/{execution.epoch.digits}")
    (fault,) = faults(root)
    assert execution.attempt in fault and "nobody has claimed" in fault


def test_a_start_under_anothers_claim_is_a_fault(root, bench, execution):
    other = attempt_of(new_token(), 0)
    root.start(execution.epoch, other, {})
    (fault,) = faults(root)
    assert other in fault and execution.attempt in fault


def test_a_claim_that_never_started_is_sound(root, execution):
    root.claim(Epoch(0, 3, 0), attempt_of(new_token(), 0), "record-1", "run-1")
    assert root.check() == []


def test_a_manifest_under_another_name_or_attempt_is_a_fault(root, bench, execution):
    folder = f"meta/{execution.attempt}/saves"
    name = bench.store.ledger(folder).names()[0]
    document = json.loads(bench.read(f"{folder}/{name}"))
    bench.write(f"{folder}/{name}", json.dumps({**document, "path": "exec/elsewhere/save"}).encode())
    found = " ".join(faults(root))
    assert "its fields are those of" in found and "not this attempt's" in found


def test_a_missing_entry_of_a_journal_is_a_fault(root, bench, execution):
    for text in ("two", "three"):
        root.journal(execution.attempt).append("status", text=text)
    bench.delete(f"meta/{execution.attempt}/journal/{2:020d}.json")
    (fault,) = faults(root)
    assert "missing" in fault and f"{3:020d}" in fault


def test_a_bar_and_a_folder_of_nobody_are_notes_at_most(root, bench, execution):
    bench.store.ledger(f"meta/{execution.attempt}/barred").create(encode_part(f"{execution.folder}/bad"))
    bench.write("extra/file", b"")
    (note,) = root.check()
    assert (note.place, note.severity) == ("extra", Severity.NOTE)


def test_a_folder_that_is_no_root_has_a_fault_and_is_not_touched(bench):
    for folder in bench.store.folders(""):
        bench.delete(folder)
    before = bench.store.folders("")
    (fault,) = LineageRoot(bench.store).check()
    assert fault.place == "format.json"
    assert bench.store.folders("") == before


def test_a_root_whose_preparation_was_not_finished_is_sound_and_is_said_to_be_unfinished(bench):
    # given what a crash right before its document leaves
    bench.write("tmp/0123456789abcdef.probe", b"")
    for folder in STANDING:
        bench.store.make_folder(folder)
    # when
    (note,) = LineageRoot(bench.store).check()
    # then
    assert (note.place, note.severity) == (".", Severity.NOTE)
    assert "not finished" in note.text


def test_a_root_that_lost_its_format_is_at_fault_although_it_holds_nothing_else(bench):
    bench.write("tmp/0123456789abcdef.probe", b"")
    bench.write("pub/name", b"")
    assert next(fault.place for fault in LineageRoot(bench.store).check()) == "format.json"


def test_a_link_and_a_name_that_is_not_utf8_are_faults_and_the_check_goes_on(root, bench, execution, tmp_path):
    if not isinstance(bench.store, PosixStore):
        pytest.skip("no other store holds either")
    place = Path(bench.store.location)
    (place / "pruned").rmdir()
    (place / "pruned").symlink_to(tmp_path)
    (place / "claims" / os.fsdecode(b"bad\xff")).touch()
    found = " ".join(faults(root))
    assert "symbolic link" in found and r"bad\xff" in found


@pytest.mark.parametrize("ledger", ["pub", "claims", "pruned", "done", "saves", "journal", "barred", "numbers"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_regular_file_in_a_ledger_is_a_fault(root, bench, execution, ledger, kind):
    if not isinstance(bench.store, PosixStore):
        pytest.skip("no other store holds either")
    inner = ledger in ("saves", "journal", "barred", "numbers")
    folder = Path(bench.store.location, f"meta/{execution.attempt}/{ledger}" if inner else ledger)
    folder.mkdir(exist_ok=True)
    if kind == "link":
        (folder / "odd").symlink_to("/etc/passwd")
    else:
        os.mkfifo(folder / "odd")
    (fault,) = faults(root)
    assert f"{ledger}/odd: it is no regular file" in fault


def test_a_source_of_another_attempt_is_a_fault(root, bench, execution):
    folder = f"meta/{execution.attempt}/saves"
    name = bench.store.ledger(folder).names()[0]
    document = json.loads(bench.read(f"{folder}/{name}"))
    bench.write(f"{folder}/{name}", json.dumps({**document, "source": "exec/elsewhere/save"}).encode())
    (fault,) = faults(root)
    assert "its source 'exec/elsewhere/save'" in fault


def test_an_execution_that_begins_while_the_root_is_checked_is_no_fault(root, bench, execution, begin, monkeypatch):
    # given an execution that claims, starts and finishes a part when claims/, but not yet meta/, has been listed
    folders = bench.store.folders

    def listed_late(path: str) -> list[str]:
        if path == "meta" and not root.completions().parts:
            late = begin(0, 3)
            root.complete(late.epoch, late.attempt, "a")
        return folders(path)

    monkeypatch.setattr(bench.store, "folders", listed_late)
    # when / then
    assert root.check() == []
    assert len(root.completions().parts) == 1


def test_a_part_finished_by_an_execution_that_began_after_the_look_at_meta_is_no_fault(
    root, bench, execution, begin, monkeypatch
):
    # given
    folders = bench.store.folders

    def listed_late(path: str) -> list[str]:
        found = folders(path)
        if path == "exec" and not root.completions().parts:
            late = begin(0, 3)
            root.complete(late.epoch, late.attempt, "a")
        return found

    monkeypatch.setattr(bench.store, "folders", listed_late)
    # when / then
    assert faults(root) == []
    assert len(root.completions().parts) == 1


def test_a_listing_that_lacks_an_entry_of_a_journal_is_no_gap(root, bench, execution, monkeypatch):
    # given a listing under a writer, which may lack a name that is there although it has a later one
    for text in ("two", "three"):
        root.journal(execution.attempt).append("status", text=text)
    ledger = bench.store.ledger

    def with_a_hole(folder: str):
        found = ledger(folder)
        if folder.endswith("/journal"):
            names = found.names()
            found.names = lambda after="": [name for name in names if name != f"{2:020d}.json"]
        return found

    monkeypatch.setattr(bench.store, "ledger", with_a_hole)
    # when / then
    assert root.check() == []
