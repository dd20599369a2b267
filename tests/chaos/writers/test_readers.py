"""Real processes read at full speed while others write, and some of these are killed: no false gap, nothing goes back.

What a writer's call returned before a look began is in that look, and so is what an earlier look of the same process
has seen. In the full form many times as much is written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prefect_dispatch.format.documents import FORMAT, encode
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.model.fold import fold
from support.full_form import FULL
from support.root_faults import faults_of

LONG = 2000
"""Names that one system call does not list: it takes some 32 KiB of them."""


@pytest.fixture
def told(place) -> str:
    """Where writers tell what has returned."""
    return str(place / "told")


@pytest.fixture
def amount(rounds) -> int:
    return rounds * (1 if FULL else 4)


def check_looks(looks) -> None:
    """Nothing was seen that must not be, and everybody looked more than once, so beside the writers too."""
    assert [fault for look in looks for fault in look.value["faults"]] == []
    assert all(look.value["looks"] >= 2 for look in looks), [look.value["looks"] for look in looks]


def kill_some(processes: int, kills: bool) -> list[list[float]]:
    """Every third writer, one after another."""
    return [[number, 0.15 + 0.05 * number] for number in range(0, processes, 3)] if kills else []


def fill_journal(root, attempt: str) -> None:
    """Give a journal so many entries that no single system call lists them all; only then can a listing have holes."""
    folder = Path(root.location, "meta", attempt, "journal")
    folder.mkdir()
    for seq in range(1, LONG + 1):
        entry = {"format": FORMAT, "seq": seq, "kind": "status", "text": "", "nonce": f"{seq:016x}"}
        (folder / f"{seq:020d}.json").write_bytes(encode(entry))


@pytest.mark.parametrize("kills", [False, True], ids=["all live", "some are killed"])
def test_readers_of_a_root_see_all_that_returned_and_no_fault(racers, root, told, processes, amount, kills):
    # given executions that save, rotate and note parts side by side, the later ones begun last
    at = {"root": root.location, "told": told}
    executions = []
    for number in range(1, processes // 2 + 1):
        epoch, attempt = Epoch(0, number, 0), attempt_of(new_token(), 0)
        root.claim(epoch, attempt, "record-1", "run-1")
        root.start(epoch, attempt, {})
        executions.append({"act": "execute", "epoch": epoch.number, "attempt": attempt, "count": amount, **at})
    # and some that begin meanwhile, and one journal that several write to
    attempt = executions[0]["attempt"]
    fill_journal(root, attempt)
    begins = {"act": "begin", "generation": 1, "count": amount // 2, **at}
    writers = [*executions, begins, *[{"act": "note", "attempt": attempt, "count": amount, **at}] * 3]
    readers = [
        {"act": "see_publications", **at},
        {"act": "see_latest", **at},
        {"act": "see_completions", **at},
        {"act": "see_check", **at},
        {"act": "see_journal", "attempt": attempt, **at},
        {"act": "see_names", "folder": "pub", "kind": "pub", **at},
        {"act": "see_names", "folder": "done", "kind": "done", **at},
        {"act": "see_names", "folder": "claims", "kind": "claims", **at},
        {"act": "see_names", "folder": f"meta/{attempt}/journal", "kind": attempt, **at},
    ]
    # when
    runs, looks = racers.race(*writers, readers=readers, kills=kill_some(len(writers), kills))
    # then
    check_looks(looks)
    assert {run.ended for run in runs} <= {"done", "killed"}, runs
    assert faults_of(root) == []
    assert root.latest().publication is not None


@pytest.mark.parametrize("kills", [False, True], ids=["all live", "some are killed"])
def test_readers_of_a_record_see_no_gap_and_never_go_back(racers, place, record, told, processes, amount, kills):
    # given supervisors that append by compare-and-append, with a snapshot every 16 facts
    at = {"record": str(place / "records"), "told": told}
    writers = [{"act": "carry", "count": amount, **at}] * (processes // 2)
    readers = [
        {"act": "see_record", "anew": True, **at},
        {"act": "see_record", "anew": False, **at},
        {"act": "see_names", "root": at["record"], "told": told, "folder": "digits/record", "kind": "fact"},
    ]
    # when
    runs, looks = racers.race(*writers, readers=readers, kills=kill_some(len(writers), kills))
    # then
    check_looks(looks)
    entries = record.entries()
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert fold(entries) == record.refresh()
    assert len({entry.nonce for entry in entries}) == len(entries)
    done = [run for run in runs if run.ended == "done"]
    assert len(entries) > amount * len(done)
    assert {run.ended for run in runs} <= {"done", "killed"}
