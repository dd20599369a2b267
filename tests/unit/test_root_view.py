"""What a supervisor learns from a root, and that a root that cannot tell never stops it."""

from __future__ import annotations

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.supervisor.root_view import RootView

EPOCH = Epoch(0, 1, 0)
ATTEMPT = attempt_of("a" * 16, 0)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def root(store):
    root = LineageRoot(store)
    root.prepare("record", "digits")
    return root


def claimed(root: LineageRoot) -> None:
    root.claim(EPOCH, ATTEMPT, "record", "run")
    root.start(EPOCH, ATTEMPT, {})


def test_an_execution_that_never_claimed_never_ran(root):
    assert RootView(root).last_word(EPOCH, ATTEMPT).claimed is False


def test_an_execution_without_a_last_word_leaves_open_whether_it_ran(root):
    claimed(root)
    word = RootView(root).last_word(EPOCH, ATTEMPT)
    assert (word.claimed, word.program_started) == (True, None)


@pytest.mark.parametrize("reason", ExitReason)
def test_every_last_word_is_understood(root, reason):
    # given
    claimed(root)
    journal = root.journal(ATTEMPT)
    journal.append(JournalKind.FAULT.value, text="the disk is full")
    started = reason is not ExitReason.REFUSED
    journal.append(JournalKind.EXIT.value, at=1.7e9, **ExitNote(started, 1, None, 1, reason).fields())
    # when
    view = RootView(root)
    word = view.last_word(EPOCH, ATTEMPT)
    # then
    assert word.program_started is started
    assert ("the disk is full" in word.detail) is (reason is not ExitReason.PROGRAM)
    assert view.exited_at(ATTEMPT).timestamp() == 1.7e9
    assert view.faults == ()


def test_progress_is_the_last_that_was_told(root):
    # given
    claimed(root)
    journal = root.journal(ATTEMPT)
    journal.append(JournalKind.PROGRESS.value, percent=10)
    journal.append(JournalKind.PROGRESS.value, percent=20.5)
    journal.append(JournalKind.STATUS.value, text="epoch 3")
    # when
    view = RootView(root)
    progress = view.progress(ATTEMPT)
    # then
    assert (progress.percent, progress.status) == (20.5, "epoch 3")
    # and so it stays while nothing new is told, and what is told next changes that alone
    assert view.progress(ATTEMPT) == progress
    journal.append(JournalKind.PROGRESS.value, percent=30)
    progress = view.progress(ATTEMPT)
    assert (progress.percent, progress.status) == (30, "epoch 3")


def test_a_malformed_name_is_named_once_and_stops_nothing(root, store):
    # given
    claimed(root)
    store.ledger("pub").create("what-is-this")
    view = RootView(root)
    # when
    answers = [view.published(0), view.final_save(0), view.publications()]
    # then
    assert answers == [None, None, None]
    assert len(view.faults) == 1
    assert "pub/what-is-this" in view.faults[0]


@pytest.mark.parametrize("at", ["soon", True, -5, 1e300, None])
def test_a_time_that_is_none_is_no_time(root, at):
    claimed(root)
    note = ExitNote(True, 0, None, 0, ExitReason.PROGRAM)
    root.journal(ATTEMPT).append(JournalKind.EXIT.value, at=at, **note.fields())
    assert RootView(root).exited_at(ATTEMPT) is None
