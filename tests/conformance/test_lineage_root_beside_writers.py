"""Deciding what to resume from while older executions go on publishing and rotating, on every store."""

from __future__ import annotations

import itertools

import pytest

from prefect_dispatch.errors import Absent, StoreError, StoreUnreachable, UnusableCheckpoint
from prefect_dispatch.format.resume_choice import ResumeChoice


def on_first_look_at_files(bench, monkeypatch, act) -> None:
    """Let something happen when publications are listed already, and files are not yet looked at."""
    real, acted = bench.store.difference, []

    def difference(path, files):
        if not acted:
            acted.append(True)
            act()
        return real(path, files)

    monkeypatch.setattr(bench.store, "difference", difference)


@pytest.mark.parametrize("pins", [False, True])
def test_saves_rotated_away_while_one_looks_give_way_to_those_that_came_instead(root, bench, begin, monkeypatch, pins):
    # given an older execution, alive, that keeps two saves
    old, new = begin(0, 1), begin(0, 2)
    early = [old.save(f"s{step}", step) for step in (1, 2)]

    def rotate() -> None:
        for step in (3, 4):
            old.save(f"s{step}", step)
        for publication in early:
            bench.delete(publication.path)

    on_first_look_at_files(bench, monkeypatch, rotate)
    # when
    taken = root.pin(new.epoch, new.attempt, ResumeChoice()) if pins else root.latest()
    # then
    assert taken.publication == root.publications()[-1]
    assert taken.publication.step == 4


def test_a_rotation_that_never_rests_ends_in_an_answer(root, bench, begin, monkeypatch):
    # given a program whose newest save is gone when it is looked at, and another one published
    old = begin(0, 1)
    newest = [old.save("s1", 1)]
    real = bench.store.difference

    def difference(path, files):
        if newest and path == newest[-1].path:
            bench.delete(path)
            step = newest.pop().step + 1
            newest.append(old.save(f"s{step}", step))
        return real(path, files)

    monkeypatch.setattr(bench.store, "difference", difference)
    # when / then
    with pytest.raises(UnusableCheckpoint, match="none is usable"):
        root.latest()


def test_what_another_process_of_the_attempt_imports_under_the_same_name_is_not_taken_for_ones_own(
    root, bench, begin, monkeypatch
):
    # given saves of one name and one size, and two processes of one attempt that have chosen different ones
    old, new = begin(0, 1), begin(0, 2)
    bench.write(f"{old.folder}/1/last/model.bin", b"one")
    bench.write(f"{old.folder}/2/last/model.bin", b"two")
    first = old.publish(f"{old.folder}/1/last", 1)
    root.store.copy(first.path, f"meta/{new.attempt}/resume/last", root.store.files(first.path))
    second = old.publish(f"{old.folder}/2/last", 2)
    # when
    pin = root.pin(new.epoch, new.attempt, ResumeChoice())
    # then
    assert pin.publication == second
    assert pin.path.endswith("/last")
    assert bench.read(f"{pin.path}/model.bin") == b"two"


@pytest.mark.parametrize("call", range(16))
def test_a_root_that_is_away_for_one_call_of_a_pin_hides_no_save(root, begin, call, monkeypatch):
    # given two saves, and a root that is not there while one of the calls of a pin is made
    old, new = begin(0, 1), begin(0, 2)
    old.save("checkpoint-1", 1)
    newest = old.save("checkpoint-2", 2)
    away_for(call, root.store, monkeypatch)
    # when the next execution decides what to resume from
    try:
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
    except (StoreError, StoreUnreachable):
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
    # then it is the newest save, or an error first
    assert pin.publication == newest


def away_for(away, store, monkeypatch):
    """Have one call that reads find nothing, as it would while a mount is gone."""
    calls = itertools.count()
    make = store.ledger

    def ledger(folder):
        made = make(folder)
        names, unordered, read = made.names, made.unordered_names, made.read

        def absent(name, *rest):
            if next(calls) == away:
                raise Absent(f"{name} is not there")
            return read(name, *rest)

        monkeypatch.setattr(made, "names", lambda *rest, **most: [] if next(calls) == away else names(*rest, **most))
        monkeypatch.setattr(made, "unordered_names", lambda: [] if next(calls) == away else unordered())
        monkeypatch.setattr(made, "read", absent)
        return made

    monkeypatch.setattr(store, "ledger", ledger)
    difference = store.difference
    monkeypatch.setattr(
        store, "difference", lambda *given: "model.bin is gone" if next(calls) == away else difference(*given)
    )
