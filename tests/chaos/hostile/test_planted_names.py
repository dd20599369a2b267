"""Names that a hostile job plants in ledgers: junk, forgeries, and more than anybody can list."""

from __future__ import annotations

import os

import pytest

from prefect_dispatch.format.epoch import MAX_EPOCH, Epoch
from prefect_dispatch.stores.check import MOST_FAULTS_OF_A_FOLDER
from prefect_dispatch.supervisor import attempt_view, root_look, root_view

MANY = 10_000
"""Names of a flood. What takes the square of them, a hundred million looks, is far beyond the bound on time."""
LEDGERS = (
    "pub",
    "pruned",
    "claims",
    "meta/{attempt}/journal",
    "meta/{attempt}/saves",
    "meta/{attempt}/numbers",
    "meta",
)
NAMES = {
    "escape": b"\x1b]52;c;aGk=\x07",
    "C1": "\x9b2J".encode(),
    "bidirectional": "\u202egnp.exe".encode(),
    "newline": b"a\nb\nfault: forged",
    "not UTF-8": b"\xff\xfe",
    "surrogate": b"\xed\xa0\x80",
    "dots": b"...",
    "dash": b"--help",
    "markup": b"<img src=x onerror=alert(1)>",
    "other digits": "٠".encode() * 20,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("ledger", LEDGERS)
def test_no_name_harms(victim, unharmed, ledger, name):
    # given
    folder = victim.own / ledger.format(attempt=victim.attempt)
    folder.mkdir(exist_ok=True)
    (folder / "x").touch()
    os.rename(folder / "x", os.fsencode(folder) + b"/" + name)
    # when
    seen = unharmed(only=("view", "latest", "check"))
    # then it is told, never skipped
    assert seen["check"]["code"] == (65 if ledger != "meta" else 0)


FORGED = {
    "a greater epoch in its own folder": (9_000_000, "exec/{second}/step-2"),
    "an epoch above anything": (MAX_EPOCH, "exec/{second}/step-2"),
    "another's folder": (2_000_000, "exec/{first}/step-1"),
    "nobody's folder": (2_000_000, "exec/cccccccccccccccc-0/step-1"),
    "no folder of an execution": (2_000_000, "meta/{second}/started.json"),
}


@pytest.mark.parametrize(("epoch", "path"), FORGED.values(), ids=FORGED)
def test_a_forged_publication_is_told_and_taken_by_nobody(victim, unharmed, epoch, path):
    # given
    path = path.format(first=victim.first, second=victim.attempt)
    (victim.own / "pub" / victim.publication(epoch, 2**63 - 1, path)).touch()
    # when
    seen = unharmed()
    # then
    assert seen["latest"]["out"].endswith(f"exec/{victim.attempt}/step-2\n")
    assert path in seen["latest"]["err"]
    assert seen["check"]["code"] == 65
    assert victim.publication(2_000_000, 2, f"exec/{victim.attempt}/step-2") in seen["view"]["out"]


def test_junk_without_end_is_listed_within_bounds(victim, unharmed):
    # given
    for folder in (victim.own / "pub", victim.meta / "journal"):
        for number in range(MANY):
            os.mknod(folder / f"junk-{number}")
    # when
    seen = unharmed(only=("view", "latest", "check"))
    # then not every one fills the screen
    assert len(seen["check"]["out"].splitlines()) < 2 * MOST_FAULTS_OF_A_FOLDER + 10
    assert f"pub: {MANY - MOST_FAULTS_OF_A_FOLDER:,} more faults" in seen["check"]["out"]


def test_publications_and_manifests_without_end_are_looked_at_within_bounds(victim, unharmed):
    # given publications that name one save, each with a manifest of that name that is another's
    saves = victim.meta / "saves"
    manifest = next(saves.iterdir())
    path = f"exec/{victim.attempt}/step-2"
    for step in range(10, 10 + MANY):
        os.mknod(victim.own / "pub" / victim.publication(2_000_000, step, path))
        os.link(manifest, saves / f"{step:020d}{manifest.name[20:]}")
    # when
    seen = unharmed(only=("view", "status", "timeline -o", "list"))
    # then
    assert f"{MANY + 1}  " in seen["status"]["out"]


def test_a_supervisor_lists_no_more_names_than_it_can_hold(victim, monkeypatch):
    # given
    for module in (root_view, attempt_view):
        monkeypatch.setattr(module, "MOST_NAMES", 100)
    for folder in (victim.own / "pub", victim.meta / "journal"):
        for number in range(101):
            (folder / f"junk-{number}").touch()
    view = root_view.RootView(victim.lineage_root())
    # when
    answers = [view.publications(), view.progress(victim.attempt), view.last_word(Epoch(0, 2, 0), victim.attempt)]
    # then
    assert answers == [None, None, None]
    assert ["more than 100 entries" in fault for fault in view.faults] == [True, True]


def test_faults_without_end_fill_no_memory(victim):
    # given
    view = root_view.RootView(victim.lineage_root())
    pub = victim.own / "pub"
    # when a job names its junk anew before each look
    junk = pub / "junk"
    junk.touch()
    for number in range(root_look.MOST_FAULTS + 20):
        junk = junk.rename(pub / f"junk-{number}")
        assert view.publications() is None
    # then
    assert len(view.faults) == root_look.MOST_FAULTS
