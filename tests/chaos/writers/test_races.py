"""Real processes race for one name, round after round: exactly one has it, and all agree whose it is.

In the full form 32 processes race for 200 rounds instead of 8 for 5, on each file system.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from prefect_dispatch.format.completion import Completion
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.model.fold import fold
from prefect_dispatch.stores.claim import read_claim
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from support.root_faults import faults_of


def ends(runs) -> Counter[str]:
    return Counter(run.ended for run in runs)


def save(root: LineageRoot, attempt: str, name: str, content: bytes = b"weights") -> str:
    place = Path(root.location, "exec", attempt, name)
    place.mkdir(parents=True)
    (place / "model.bin").write_bytes(content)
    (place / "optimizer.bin").write_bytes(content)
    return f"exec/{attempt}/{name}"


def begin(root: LineageRoot, submission: int) -> tuple[Epoch, str]:
    epoch, attempt = Epoch(0, submission, 0), attempt_of(new_token(), 0)
    root.claim(epoch, attempt, "record-1", "run-1")
    root.start(epoch, attempt, {})
    return epoch, attempt


def test_of_all_that_append_one_fact_one_wins_each_time(racers, place, record, processes, rounds):
    winners = []
    for turn in range(rounds):
        # given processes that have all read the same state
        words = [f"{turn}-{number}" for number in range(processes)]
        # when all append
        runs, _ = racers.race(*({"act": "append", "record": str(place / "records"), "word": word} for word in words))
        # then one fact is there, and everybody else knows that it is not theirs
        assert ends(runs) == {"done": 1, "Exists": processes - 1}
        (winner,) = [word for word, run in zip(words, runs, strict=True) if run.ended == "done"]
        winners.append(winner)
        assert record.refresh().carried_by == winner
    entries = record.entries()
    assert [entry.fact.flow_run for entry in entries[1:]] == winners
    assert fold(entries) == record.refresh()
    assert record.refresh().seq == rounds + 1


def test_of_all_that_first_use_a_record_or_a_root_each_sees_the_same_one(racers, place, processes, rounds):
    for turn in range(rounds // 2):
        # given
        records, lineage = place / f"records-{turn}", place / f"root-{turn}"
        # when
        runs, _ = racers.race(
            *[{"act": "record_id", "record": str(records)}] * processes,
            *[{"act": "prepare", "root": str(lineage), "record": "record-1"}] * processes,
        )
        # then
        assert ends(runs) == {"done": 2 * processes}
        assert len({run.value for run in runs[:processes]}) == 1
        assert LineageRoot(PosixStore(lineage)).check() == []


def test_of_all_that_claim_one_epoch_one_has_it(racers, root, processes, rounds):
    for turn in range(1, rounds + 1):
        # given
        epoch = Epoch(0, turn, 0)
        attempts = [attempt_of(new_token(), 0) for _ in range(processes)]
        # when
        runs, _ = racers.race(
            *(
                {"act": "claim_and_start", "root": root.location, "epoch": epoch.number, "attempt": attempt}
                for attempt in attempts
            )
        )
        # then
        assert ends(runs) == {"done": 1, "DuplicateExecution": processes - 1}
        (winner,) = [attempt for attempt, run in zip(attempts, runs, strict=True) if run.ended == "done"]
        assert read_claim(root.store, epoch).attempt == winner
        assert all(winner in run.value for run in runs if run.ended == "DuplicateExecution")
        # and none of an earlier epoch gets in afterwards, however many try at once
        late, _ = racers.race(
            *(
                {"act": "claim", "root": root.location, "epoch": Epoch(0, number + 1, 0).number, "attempt": attempt}
                for number, attempt in enumerate(attempts[: turn - 1])
            )
        )
        assert ends(late)["DuplicateExecution"] == len(late)
    assert root.check() == []
    assert len(root.store.ledger("claims").names()) == rounds


def test_claims_of_rising_epochs_at_once_leave_at_least_the_greatest(racers, root, processes, rounds):
    for turn in range(rounds):
        # given
        epochs = [Epoch(0, turn * processes + number, 0) for number in range(1, processes + 1)]
        attempts = [attempt_of(new_token(), 0) for _ in epochs]
        # when
        runs, _ = racers.race(
            *(
                {"act": "claim_and_start", "root": root.location, "epoch": epoch.number, "attempt": attempt}
                for epoch, attempt in zip(epochs, attempts, strict=True)
            )
        )
        # then whoever has its claim has it alone, and who was refused has claimed nothing
        assert runs[-1].ended == "done"
        assert set(ends(runs)) <= {"done", "DuplicateExecution"}
        claimed = set(root.store.ledger("claims").names())
        assert [run.ended == "done" for run in runs] == [epoch.digits in claimed for epoch in epochs]
    assert root.check() == []


def test_two_processes_of_one_attempt_pin_the_same(racers, root, processes, rounds):
    _, writer = begin(root, 1)
    for turn in range(2, rounds + 2):
        # given a save, and processes of one attempt that decide while further saves of one name are published
        paths = [save(root, writer, f"{turn}/{number}/last", b"%d" % number * 1000) for number in range(processes)]
        root.publish(Epoch(0, 1, 0), writer, paths[0], turn * 1000)
        epoch, attempt = begin(root, turn)
        # when
        runs, _ = racers.race(
            *[{"act": "pin", "root": root.location, "epoch": epoch.number, "attempt": attempt}] * processes,
            *(
                {
                    "act": "publish",
                    "root": root.location,
                    "epoch": Epoch(0, 1, 0).number,
                    "attempt": writer,
                    "path": path,
                    "step": turn * 1000 + number,
                }
                for number, path in enumerate(paths)
            ),
        )
        # then there is one pin, all have read the same, and what was imported is whole and of that save
        assert ends(runs) == {"done": 2 * processes}, [run for run in runs if run.ended != "done"]
        assert len({tuple(run.value) for run in runs[:processes]}) == 1
        pin = root.pinned(attempt)
        assert pin is not None and pin.publication is not None
        number = pin.publication.step - turn * 1000
        imported = Path(root.location, str(pin.path))
        assert [file.read_bytes() for file in sorted(imported.iterdir())] == [b"%d" % number * 1000] * 2
    assert faults_of(root) == []


def test_all_that_publish_one_save_succeed_and_name_the_same(racers, root, processes, rounds):
    epoch, attempt = begin(root, 1)
    for step in range(1, rounds + 1):
        # given
        path = save(root, attempt, f"step-{step}")
        run = {"act": "publish", "root": root.location, "epoch": epoch.number, "attempt": attempt}
        # when
        runs, _ = racers.race(*[{**run, "path": path, "step": step}] * processes)
        # then
        assert ends(runs) == {"done": processes}
        assert {each.value for each in runs} == {root.publications()[-1].name}
        assert root.latest().publication == root.publications()[-1]
    assert len(root.publications()) == rounds
    assert root.check() == []


def test_of_all_that_note_one_part_one_has_the_word(racers, root, processes, rounds):
    epoch, attempt = begin(root, 1)
    for turn in range(rounds):
        # given
        run = {"act": "complete", "root": root.location, "epoch": epoch.number, "attempt": attempt, "key": f"{turn}"}
        # when
        runs, _ = racers.race(*({**run, "word": f"{number}"} for number in range(processes)))
        # then
        assert ends(runs) == {"done": 1, "Exists": processes - 1}
        (word,) = [run.value for run in runs if run.ended == "done"]
        assert root.finished_part(Completion(f"{turn}", epoch)).result == {"by": word}
    assert set(root.completions().parts) == {f"{turn}" for turn in range(rounds)}
    assert root.check() == []


@pytest.mark.parametrize("act", ["append", "claim_and_start", "complete"])
def test_a_racer_that_is_killed_on_the_way_leaves_a_whole_name_or_none(
    racers, place, root, record, processes, rounds, act
):
    epoch, attempt = begin(root, 1)
    fates: Counter[str] = Counter()
    for turn in range(20 * rounds):
        # Where the machine is quick, all may be through before any is killed.
        if turn >= rounds and fates["killed"]:
            break
        # given
        own = {
            "append": {"record": str(place / "records")},
            "claim_and_start": {"root": root.location, "epoch": Epoch(0, turn + 2, 0).number},
            "complete": {"root": root.location, "epoch": epoch.number, "attempt": attempt, "key": f"{turn}"},
        }[act]
        runs = []
        for number in range(processes):
            word = {"claim_and_start": {"attempt": attempt_of(new_token(), 0)}}.get(act, {"word": f"{turn}-{number}"})
            runs.append({"act": act, **own, **word})
        # when half of them are killed within the first milliseconds
        kills = [[number, (turn % 8) * number * 0.0004] for number in range(0, processes, 2)]
        outcomes, _ = racers.race(*runs, kills=kills)
        # then at most one has won, and nothing that anybody reads is half there
        fates.update(run.ended for run in outcomes)
        assert ends(outcomes)["done"] <= 1
        assert faults_of(root) == []
    seqs = [entry.seq for entry in record.entries()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert fold(record.entries()) == record.refresh()
    for entry in root.completions().parts.values():
        assert root.finished_part(entry).attempt == attempt
    assert fates["killed"] > 0, fates
