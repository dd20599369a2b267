"""The total deadline: its terms and document, the clock that never goes back, and what executions agree on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import DeadlinePassed, MalformedDocument, MalformedName, UsageError
from prefect_dispatch.format.deadline import LATEST, DeadlineTerms, TotalDeadline, describe_time, without_code
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of
from prefect_dispatch.job.deadline import Deadline, DeadlineClock, settle
from prefect_dispatch.stores.deadline import read_deadline, read_past
from prefect_dispatch.stores.layout import generation_name
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore

NOON = 1_800_000_000.0
HOUR = 3600.0
TOKENS = ("k3v7q2m5x4c6b7a2", "a3v7q2m5x4c6b7a2", "b3v7q2m5x4c6b7a2")


@dataclass
class Host:
    """A machine with a wall clock that anybody may set, and one that nobody can."""

    wall: float = NOON
    elapsed: float = 7.0

    def turn(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds

    def clock(self, known: float = 0.0) -> DeadlineClock:
        return DeadlineClock(known, lambda: self.wall, lambda: self.elapsed)


def terms(**changes: Any) -> DeadlineTerms:
    return DeadlineTerms(**{"budget": timedelta(hours=8), "margin": timedelta(minutes=2), **changes})


@pytest.fixture
def root(tmp_path: Path) -> LineageRoot:
    root = LineageRoot(PosixStore(tmp_path / "root"))
    root.prepare("record-1", "digits")
    return root


def claim(
    root: LineageRoot, host: Host, n: int = 1, generation: int = 0, now: float = 0.0
) -> tuple[DeadlineClock, float]:
    """What an execution does on its host up to its claim; its clock, and when the generation began."""
    clock, past = host.clock(now), read_past(root.store, generation)
    clock.learn(past.latest)
    at = clock.now()
    root.claim(Epoch(generation, n, 0), attempt_of(TOKENS[n - 1], 0), "record-1", f"run-{n}", at)
    return clock, at if past.first_claim is None else min(at, past.first_claim)


def start(root: LineageRoot, host: Host, n: int = 1, generation: int = 0, **changes: Any) -> Deadline:
    """What an execution does on its host up to its deadline."""
    identity = changes.pop("identity", {"seed": "sha256:1"})
    given = terms(**changes)
    clock, first = claim(root, host, n, generation, given.now)
    began_at = first if given.opened_at is None else given.opened_at
    attempt, budget = attempt_of(TOKENS[n - 1], 0), given.budget.total_seconds()
    wanted = TotalDeadline("digits", generation, attempt, began_at, budget, without_code(identity))
    return settle(root.store, given, clock, wanted)


def test_a_clock_set_back_or_forward_never_gives_time_back() -> None:
    host = Host()
    clock = host.clock()
    host.turn(60)
    assert clock.now() == NOON + 60
    # when somebody sets the wall clock back by two hours, time goes on
    host.wall -= 2 * HOUR
    host.turn(60)
    assert clock.now() == NOON + 120
    # and where it jumps ahead, nothing takes that back
    host.wall = NOON + HOUR
    assert clock.now() == NOON + HOUR
    host.wall = NOON
    assert clock.now() == NOON + HOUR


def test_time_in_which_the_machine_was_suspended_counts() -> None:
    host = Host()
    clock = host.clock()
    host.elapsed += HOUR
    assert clock.now() == NOON + HOUR


def test_what_is_learned_counts_from_when_it_is_learned() -> None:
    host = Host()
    clock = host.clock()
    clock.learn(NOON + HOUR)
    clock.learn(NOON)
    host.elapsed += 5
    assert clock.now() == NOON + HOUR + 5


def test_a_later_execution_on_a_host_with_a_slow_clock_keeps_the_deadline(root: LineageRoot) -> None:
    # given a first execution, which wrote an hour after its claim
    first = start(root, Host())
    assert first.ends_at == NOON + 8 * HOUR
    root.journal(attempt_of(TOKENS[0], 0)).append("status", at=NOON + HOUR, text="training")
    # when another host, whose clock is two hours slow, takes over
    second = start(root, Host(wall=NOON - 2 * HOUR), 2)
    # then it has neither more time nor a later end
    assert (second.ends_at, second.left()) == (NOON + 8 * HOUR, 7 * HOUR)
    # and a third one learns it from the second one's claim
    assert start(root, Host(wall=NOON - 2 * HOUR), 3).left() == 7 * HOUR


def test_an_entry_without_a_time_hides_none_of_those_before_it(root: LineageRoot) -> None:
    # given an execution whose last entry is a command's of the program, which has no clock
    start(root, Host())
    journal = root.journal(attempt_of(TOKENS[0], 0))
    journal.append("status", at=NOON + HOUR, text="training")
    journal.append("barred", path="exec/x", step=1, why="no space")
    # when / then
    assert start(root, Host(wall=NOON - HOUR), 2).left() == 7 * HOUR


def test_a_bound_of_the_supervisor_counts_where_the_hosts_clock_is_slow(root: LineageRoot) -> None:
    start(root, Host())
    assert start(root, Host(wall=NOON - HOUR), 2, now=NOON + 3 * HOUR).left() == 5 * HOUR


def test_the_time_begins_with_the_first_claim_though_its_execution_wrote_no_deadline(root: LineageRoot) -> None:
    claim(root, Host())
    assert start(root, Host(wall=NOON + HOUR), 2).ends_at == NOON + 8 * HOUR


def test_the_time_in_the_queue_counts_if_the_job_says_so(root: LineageRoot) -> None:
    assert start(root, Host(), opened_at=NOON - HOUR).ends_at == NOON + 7 * HOUR


def test_a_generation_that_supersedes_has_its_own(root: LineageRoot) -> None:
    start(root, Host())
    assert start(root, Host(wall=NOON + 20 * HOUR), 2, generation=1).ends_at == NOON + 28 * HOUR


@pytest.mark.parametrize("passed", [8 * HOUR - 121, 8 * HOUR - 120, 9 * HOUR])
def test_within_the_margin_nothing_is_started(root: LineageRoot, passed: float) -> None:
    start(root, Host())
    deadline = start(root, Host(wall=NOON + passed), 2)
    if passed < 8 * HOUR - 120:
        deadline.require_time()
        return
    with pytest.raises(DeadlinePassed, match="total deadline 2027-01-15T16:00:00Z") as error:
        deadline.require_time()
    assert error.value.exit_code == 193


def test_what_is_due_comes_in_order(root: LineageRoot) -> None:
    host = Host()
    deadline = start(root, host)
    for until_next in (8 * HOUR - 120, 115.0, 5.0, 0.0):
        assert deadline.until_next() == until_next
        host.turn(until_next)
    assert deadline.left() == 0


CHANGES = [
    ({"budget": timedelta(hours=9)}, "budget '28800s' there and '32400s' here"),
    ({"budget": timedelta(hours=8, milliseconds=1)}, "budget '28800s' there and '28800.001s' here"),
    ({"identity": {"seed": "sha256:2"}}, "identity seed 'sha256:1' there and 'sha256:2' here"),
    ({"identity": {}}, "identity seed 'sha256:1' there and 'missing' here"),
]


@pytest.mark.parametrize(("changes", "told"), CHANGES)
def test_another_budget_or_identity_is_refused_and_both_are_named(
    root: LineageRoot, changes: dict[str, Any], told: str
) -> None:
    start(root, Host())
    with pytest.raises(MalformedDocument, match=told):
        start(root, Host(), 2, **changes)
    assert read_deadline(root.store, 0).budget_seconds == 8 * HOUR


def test_a_document_that_begins_after_the_first_claim_gives_no_time(root: LineageRoot, tmp_path: Path) -> None:
    # given a deadline that somebody has moved, or that the later one of two wrote who claimed side by side
    first = start(root, Host())
    place = tmp_path / "root" / "deadline" / generation_name(0)
    document = json.loads(place.read_bytes())
    place.write_text(json.dumps({**document, "began_at": document["began_at"] + 3600}))
    # when
    second = start(root, Host(), 2)
    # then
    assert second.ends_at == first.ends_at


def test_changed_code_is_the_same_run(root: LineageRoot) -> None:
    start(root, Host(), identity={"seed": "sha256:1", "code": "git:1"})
    start(root, Host(), 2, identity={"seed": "sha256:1", "code": "git:2"})


@pytest.mark.parametrize("content", [b"", b'{"began_at": 1', b"[]", b'{"format": 1}'])
def test_a_document_that_is_empty_or_cut_is_named_and_never_made_anew(
    root: LineageRoot, tmp_path: Path, content: bytes
) -> None:
    place = tmp_path / "root" / "deadline" / generation_name(0)
    place.write_bytes(content)
    with pytest.raises(MalformedDocument, match=f"deadline/{generation_name(0)}.*not made anew"):
        start(root, Host())
    assert place.read_bytes() == content
    assert [fault.place for fault in root.check() if "deadline" in fault.place] == [f"deadline/{generation_name(0)}"]


def test_a_name_that_is_no_generations_is_a_fault(root: LineageRoot, tmp_path: Path) -> None:
    start(root, Host())
    (tmp_path / "root" / "claims" / "new").write_bytes(b"")
    with pytest.raises(MalformedName, match="claims/new"):
        start(root, Host(), 2)
    (tmp_path / "root" / "claims" / "new").rename(tmp_path / "root" / "deadline" / "7.json")
    assert any(fault.place == "deadline/7.json" for fault in root.check())


@pytest.mark.parametrize("began_at", [-1.0, 1e300, True, "noon"])
def test_a_time_that_is_none_is_malformed(began_at: object) -> None:
    document = {**TotalDeadline("digits", 0, "a", 1.0, 2.0, {}).fields(), "began_at": began_at}
    with pytest.raises(MalformedDocument, match="began_at"):
        TotalDeadline.of_fields(document, "it")


def test_a_time_is_told_as_people_write_it() -> None:
    assert describe_time(NOON + 0.9) == "2027-01-15T08:00:00Z"
    assert describe_time(LATEST) == "9999-12-31T23:59:59Z"


def test_terms_are_read_as_they_are_written() -> None:
    wanted = terms(now=NOON, opened_at=NOON - 5)
    assert DeadlineTerms.decode(wanted.encode(), "it") == wanted
    with pytest.raises(UsageError, match=r"deadline\.end"):
        DeadlineTerms.decode({**wanted.encode(), "end": 1}, "it")
    with pytest.raises(UsageError, match="not longer than the margin"):
        terms(budget=timedelta(seconds=60))
