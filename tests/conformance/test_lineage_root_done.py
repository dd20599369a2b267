"""Finished parts: noted once, read back, and counted by the resume choice, on every store."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from prefect_dispatch.errors import Absent, Exists, MalformedDocument, MalformedName, UnknownFormat, UsageError
from prefect_dispatch.format.completion import MAX_KEY_BYTES, Completion
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import SCRATCH, ResumeChoice
from prefect_dispatch.stores.completions import MAX_COMPLETION_BYTES


def done(root, choice: ResumeChoice | None = None, below: Epoch | None = None) -> dict[str, str]:
    """For each key the epoch of the entry that counts."""
    return {key: str(entry.epoch) for key, entry in root.completions(choice, below).parts.items()}


class TestComplete:
    def test_what_was_said_of_a_part_comes_back(self, root, bench, begin):
        # given
        execution = begin()
        # when
        part = root.complete(execution.epoch, execution.attempt, "frame-12", {"file": "out/12.png"})
        # then
        assert root.finished_part(Completion("frame-12", execution.epoch)) == part
        assert (part.attempt, part.result) == (execution.attempt, {"file": "out/12.png"})
        (name,) = bench.store.ledger("done").names()
        document = json.loads(bench.read(f"done/{name}"))
        assert (document["key"], document["epoch"]) == ("frame-12", execution.epoch.number)
        assert root.check() == []

    def test_ones_own_retry_is_success_and_another_call_sees_that_it_exists(self, root, begin):
        # given
        execution = begin()
        first = root.complete(execution.epoch, execution.attempt, "a", {"n": 1}, nonce="0123456789abcdef")
        # when / then
        again = root.complete(execution.epoch, execution.attempt, "a", {"n": 1}, nonce="0123456789abcdef")
        assert again == first
        with pytest.raises(Exists):
            root.complete(execution.epoch, execution.attempt, "a", {"n": 2})
        assert root.finished_part(first.completion).result == {"n": 1}

    def test_of_many_that_note_one_part_one_succeeds_and_its_word_stays(self, root, begin):
        # given
        execution = begin()
        start = threading.Barrier(16)

        def complete(number: int) -> int | None:
            start.wait(timeout=30)
            try:
                root.complete(execution.epoch, execution.attempt, "a", {"by": number})
            except Exists:
                return None
            return number

        # when
        with ThreadPoolExecutor(16) as pool:
            (winner,) = [each for each in pool.map(complete, range(16)) if each is not None]
        # then
        assert root.finished_part(Completion("a", execution.epoch)).result == {"by": winner}

    @pytest.mark.parametrize("key", ["a b", "é/../x", "-", "two\nlines", "a" * MAX_KEY_BYTES, "é" * 73])
    def test_any_key_comes_back(self, root, begin, key):
        execution = begin()
        root.complete(execution.epoch, execution.attempt, key)
        assert done(root) == {key: "g0n1r0"}

    @pytest.mark.parametrize(
        ("key", "result", "why"),
        [
            ("a" * 147, {}, "147 bytes.*at most 146"),
            ("", {}, "empty"),
            ("a", {"n": float("nan")}, "not JSON"),
            ("a", {"n": object()}, "not JSON"),
            ("a", {"n": "x" * MAX_COMPLETION_BYTES}, f"at most {MAX_COMPLETION_BYTES}"),
        ],
        ids=["long", "empty", "nan", "object", "large"],
    )
    def test_what_cannot_be_kept_is_refused_and_nothing_is_noted(self, root, bench, begin, key, result, why):
        execution = begin()
        with pytest.raises(UsageError, match=why):
            root.complete(execution.epoch, execution.attempt, key, result)
        assert bench.store.ledger("done").names() == []

    def test_a_part_that_nobody_finished_is_absent(self, root, begin):
        with pytest.raises(Absent):
            root.finished_part(Completion("a", begin().epoch))


class TestWhichCount:
    @pytest.fixture
    def three(self, root, begin):
        """Three executions: all did part a, the first also b, the second c, the third d."""
        executions = [begin(0, 1), begin(0, 2), begin(1, 1)]
        for execution, own in zip(executions, "bcd", strict=True):
            for key in ("a", own):
                root.complete(execution.epoch, execution.attempt, key)
        return executions

    def test_without_a_choice_all_do_and_the_greatest_epoch_has_each_key(self, root, three):
        assert done(root) == {"a": "g1n1r0", "b": "g0n1r0", "c": "g0n2r0", "d": "g1n1r0"}

    def test_from_scratch_only_those_at_or_above_the_floor(self, root, three):
        choice = ResumeChoice(SCRATCH, three[1].epoch.number)
        assert done(root, choice) == {"a": "g1n1r0", "c": "g0n2r0", "d": "g1n1r0"}

    def test_from_a_publication_also_those_not_above_its_epoch(self, root, three):
        base = Publication(three[0].epoch, 1, f"{three[0].folder}/s")
        choice = ResumeChoice(base, three[2].epoch.number)
        assert done(root, choice) == {"a": "g1n1r0", "b": "g0n1r0", "d": "g1n1r0"}

    def test_from_a_publication_with_a_floor_that_nobody_has_reached(self, root, three):
        base = Publication(three[1].epoch, 1, f"{three[1].folder}/s")
        choice = ResumeChoice(base, Epoch(7, 1, 0).number)
        assert done(root, choice) == {"a": "g0n2r0", "b": "g0n1r0", "c": "g0n2r0"}

    def test_below_an_epoch_only_lesser_ones(self, root, three):
        assert done(root, below=three[2].epoch) == {"a": "g0n2r0", "b": "g0n1r0", "c": "g0n2r0"}

    def test_keys_come_in_the_order_of_their_bytes(self, root, begin):
        execution = begin()
        for key in ("z", "é", "Z", "2", "10"):
            root.complete(execution.epoch, execution.attempt, key)
        assert list(root.completions().parts) == ["10", "2", "Z", "z", "é"]

    def test_nothing_done_is_an_empty_answer(self, root):
        assert done(root) == {}

    def test_an_epoch_that_nobody_claimed_or_started_is_passed_over_and_told(self, root, bench, begin):
        # given
        honest = begin(0, 1)
        root.complete(honest.epoch, honest.attempt, "a")
        for forged in (Epoch(5, 1, 0), Epoch(6, 1, 0), Epoch(7, 1, 0)):
            root.complete(forged, honest.attempt, "a")
        root.claim(Epoch(6, 1, 0), attempt_of(new_token(), 0), "record-1", "run-1")
        root.claim(Epoch(7, 1, 0), honest.attempt, "record-1", "run-1")
        # when
        completions = root.completions()
        # then
        assert {key: entry.epoch for key, entry in completions.parts.items()} == {"a": honest.epoch}
        assert [str(entry.epoch) for entry, _ in completions.passed_over] == ["g5n1r0", "g6n1r0", "g7n1r0"]
        for (_, why), said in zip(
            completions.passed_over, ("never claimed", "no started.json", "is of epoch g0n1r0"), strict=True
        ):
            assert said in why
        assert sum("done/" in str(fault) for fault in root.check()) == 3


class TestDamage:
    @pytest.mark.parametrize("name", ["garbage", "ME", f"me-{10**6:020d}", f"ME-{0:020d}", f"ME-{10**6:020d}.json"])
    def test_a_malformed_name_is_named_and_never_skipped(self, root, bench, begin, name):
        execution = begin()
        root.complete(execution.epoch, execution.attempt, "a")
        bench.write(f"done/{name}", b"{}")
        with pytest.raises(MalformedName, match=re.escape(f"done/{name}")):
            root.completions()
        assert [fault.place for fault in root.check()] == [f"done/{name}"]

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"key": "b"}, "key = 'b'"),
            ({"epoch": 7}, "epoch = 7"),
            ({"attempt": "UPPER"}, "UPPER"),
            ({"result": []}, "result"),
            ({"result": {"n": "x" * MAX_COMPLETION_BYTES}}, "at most"),
            ({"nonce": 1}, "nonce"),
        ],
        ids=lambda change: str(change)[:20],
    )
    def test_an_entry_that_is_not_what_its_name_says_is_named(self, root, bench, begin, change, why):
        # given
        execution = begin()
        part = root.complete(execution.epoch, execution.attempt, "a")
        place = f"done/{part.completion.name}"
        bench.write(place, json.dumps({**json.loads(bench.read(place)), **change}).encode())
        # when / then
        with pytest.raises(MalformedDocument, match=f"{place}.*{why}"):
            root.finished_part(part.completion)
        assert [fault.place for fault in root.check()] == [place]

    def test_a_newer_entry_is_refused(self, root, bench, begin):
        execution = begin()
        part = root.complete(execution.epoch, execution.attempt, "a")
        bench.write(f"done/{part.completion.name}", b'{"format": 2}')
        with pytest.raises(UnknownFormat):
            root.finished_part(part.completion)
