"""What a hostile job writes into documents: deep, huge, odd and lying JSON."""

from __future__ import annotations

import json
import os

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.supervisor.root_look import MOST_FAULT
from prefect_dispatch.supervisor.root_view import RootView

MIB = 1024 * 1024
DOCUMENTS = (
    "format.json",
    "claims/{second}",
    "meta/{attempt}/started.json",
    "meta/{attempt}/resume.json",
    "meta/{attempt}/journal/{entry}.json",
    "meta/{attempt}/saves/{manifest}",
)
BIG = "9" * 4000
WHOLE = {
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "just not too deep": "[" * 900 + "]" * 900,
    "beyond 4300 digits": '{"format": ' + "1" * 5000 + "}",
    "format of many digits": '{"format": ' + BIG + "}",
    "format 1e999": '{"format": 1e999}',
    "not a number": '{"format": NaN}',
    "bytes": b"\xff\xfe\x00\x01",
    "empty": "",
    "null": "null",
    "newer": '{"format": 2}',
    "many lists": '{"format": 1, "a": [' + "[]," * (16 * MIB // 3 - 20) + "[]]}",
    "key twice": '{"format": 1, "format": 1, "seq": 2, "seq": 3, "kind": "status"}',
}
VALUES = {
    "digits": f"{BIG}",
    "1e999": "1e999",
    "-1e999": "-1e999",
    "minus": "-1",
    "fraction": "1.5",
    "true": "true",
    "null": "null",
    "text": '"\\u001b]52;c;aGFoYQ==\\u0007\\u009b31m\\u202e"',
    "surrogate": '"\\ud800"',
    "nul": '"\\u0000"',
    "deep": "[" * 850 + "]" * 850,
    "list": "[1, 2]",
    "object": '{"a": "b"}',
    "long": '"' + "\\u001b" * 150_000 + '"',
}


@pytest.mark.parametrize("content", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("place", DOCUMENTS)
def test_no_document_harms_whatever_it_holds(victim, unharmed, place, content):
    # given
    path = victim.replace(victim.named(place))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    # when / then
    unharmed(only=("view", "latest", "check"))


def with_value(document: dict, field: str, value: str) -> str:
    return json.dumps({**document, field: "@"}).replace('"@"', value)


def told(victim) -> str:
    """All that a supervisor gets to know of the root, in words."""
    root = victim.lineage_root()
    view = RootView(root)
    publications = view.publications() or []
    answers = [view.published(0), view.final_save(0), view.exited_at(victim.attempt), view.progress(victim.attempt)]
    answers += [view.last_word(Epoch(0, 2, 0), victim.attempt), view.saved_at(publications)]
    assert all(fault.isprintable() and len(fault) <= MOST_FAULT for fault in view.faults)
    view.pin(victim.attempt)
    return str(answers)


@pytest.mark.parametrize("place", DOCUMENTS)
def test_no_field_harms_whatever_it_holds(victim, place):
    path = victim.own / victim.named(place)
    document = json.loads(path.read_text())
    for field in document:
        for value in VALUES.values():
            path.unlink()
            path.write_text(with_value(document, field, value))
            assert told(victim).isprintable()


@pytest.mark.parametrize("field", ["path", "size", "mtime_ns", "link"])
def test_no_field_of_a_manifests_file_harms_whatever_it_holds(victim, field):
    path = victim.own / victim.named("meta/{attempt}/saves/{manifest}")
    document = json.loads(path.read_text())
    for value in (
        *VALUES.values(),
        '"../../outside/secret"',
        '"/etc/passwd"',
        '"a/../../b"',
        str(10**30),
        str(-(10**18)),
    ):
        document["files"][0] = json.loads("{}") | {"path": "model.bin", "size": 9, "mtime_ns": 1, field: "@"}
        path.unlink()
        path.write_text(json.dumps(document).replace('"@"', value))
        assert told(victim).isprintable()


JOURNAL = {
    "exit": {
        "program_started": True,
        "exit_code": 0,
        "signal": None,
        "own_exit_code": 0,
        "reason": "fail",
        "at": 1.7e9,
    },
    "progress": {"percent": 3, "at": 1.7e9},
    "status": {"text": "x", "at": 1.7e9},
    "fail": {"text": "x", "at": 1.7e9},
    "fault": {"text": "x", "at": 1.7e9},
}


@pytest.mark.parametrize("kind", JOURNAL)
def test_no_entry_of_a_journal_harms_whatever_it_holds(victim, kind):
    journal = victim.meta / "journal"
    end = {"format": 1, "seq": 4, "kind": "exit", "nonce": "0" * 16, **JOURNAL["exit"]}
    (journal / f"{4:020d}.json").write_text(json.dumps(end))
    path = journal / f"{3:020d}.json"
    document = {"format": 1, "seq": 3, "kind": kind, "nonce": "0" * 16, **JOURNAL[kind]}
    for field in JOURNAL[kind]:
        for value in VALUES.values():
            path.write_text(with_value(document, field, value))
            assert told(victim).isprintable()


def test_a_journal_of_many_long_entries_is_read_within_bounds(victim, unharmed):
    journal = victim.meta / "journal"
    content = '{"a": [' + '"ab",' * (MIB // 5 - 30) + '"ab"], "format": 1, "seq": %d, "kind": "status"}'
    for seq in range(3, 203):
        (journal / f"{seq:020d}.json").write_text(content % seq)
    unharmed(only=("view", "status", "latest"))


@pytest.mark.parametrize("filling", ["[],", '"ab",'])
def test_many_long_manifests_are_read_within_bounds(victim, unharmed, filling):
    # given one that is linked under many names, so that it costs the job little
    saves = victim.meta / "saves"
    one = next(saves.iterdir()).name
    long = victim.meta / "long"
    long.write_text('{"format": 1, "a": [' + filling * (16 * MIB // len(filling) - 30) + "[]]}")
    for step in range(3, 60):
        os.mknod(victim.own / "pub" / victim.publication(2_000_000, step, f"exec/{victim.attempt}/step-2"))
        os.link(long, saves / f"{step:020d}{one[20:]}")
    # when / then
    unharmed(only=("view", "status"))


def test_a_time_far_ahead_does_not_stretch_the_timeline(victim):
    # given a save and an end in the year 5000
    manifest = victim.own / victim.named("meta/{attempt}/saves/{manifest}")
    document = json.loads(manifest.read_text())
    document["files"][0]["mtime_ns"] = int(95e18)
    manifest.unlink()
    manifest.write_text(json.dumps(document))
    note = {"format": 1, "seq": 3, "kind": "exit", "nonce": "0" * 16, **JOURNAL["exit"], "at": 95e9}
    (victim.meta / "journal" / f"{3:020d}.json").write_text(json.dumps(note))
    view = RootView(victim.lineage_root())
    # when
    times = view.saved_at(view.publications() or [])
    # then
    assert {publication.step for publication in times} == {1}
    assert view.exited_at(victim.attempt) is None
