"""The submission document survives its bytes, and any other is a usage error that names field and value."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.epoch import MAX_GENERATION, Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.format.submission import SIGNALS, Notice, RestartSource, Submission

SUBMISSION = Submission(
    lineage="digits",
    record="0123",
    generation=0,
    submission=2,
    token="k3v7q2m5x4c6b7a2",
    root="/runs",
    choice=ResumeChoice(),
    saves=Saves(SaveKind.MARKER),
    identity={"seed": "sha256:7"},
    notice=Notice(),
    restart_source=RestartSource.ENVIRONMENT,
)
lengths = some.timedeltas(timedelta(milliseconds=1), timedelta(days=1000))


@given(
    some.integers(0, MAX_GENERATION),
    some.integers(1, 999_999),
    some.sampled_from(["latest", "scratch", Publication(Epoch(0, 1, 0), 4, "exec/a b")]),
    some.sampled_from(SIGNALS),
    lengths,
    lengths,
    some.sampled_from(RestartSource),
)
def test_a_submission_survives_its_bytes(
    generation: int,
    number: int,
    base: str | Publication,
    signal: str,
    period: timedelta,
    interval: timedelta,
    source: RestartSource,
) -> None:
    submission = replace(
        SUBMISSION,
        generation=generation,
        submission=number,
        choice=ResumeChoice(base, Epoch(generation, number, 0).number),
        notice=Notice(signal, period),
        watch_interval=interval,
        restart_source=source,
    )
    assert Submission.decode(submission.encode(), "s.json") == submission


def test_it_knows_epoch_and_attempt_of_each_restart() -> None:
    assert SUBMISSION.epoch(3) == Epoch(0, 2, 3)
    assert SUBMISSION.attempt(3) == "k3v7q2m5x4c6b7a2-3"


def test_the_times_may_be_left_out() -> None:
    document = json.loads(SUBMISSION.encode())
    del document["watch_interval"], document["scan_timeout"]
    assert Submission.decode(json.dumps(document).encode(), "s.json") == SUBMISSION


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("format", 2, "format 2"),
        ("lineage", "A", "lineage 'A' is not a lineage name"),
        ("generation", -1, "generation -1"),
        ("submission", 0, "submission 0"),
        ("submission", 1_000_000, "submission 1000000"),
        ("submission", "2", "submission = '2'"),
        ("token", "short", "token 'short'"),
        ("root", "runs", "root 'runs' is not an absolute path"),
        ("root", "/ru\0ns", "root .* is not an absolute path"),
        ("base", "newest", "base 'newest'"),
        ("floor", -1, "floor -1"),
        ("floor", 2**63, "floor 9223372036854775808"),
        ("saves", {"kind": "x"}, "saves.kind 'x'"),
        ("identity", {"seed": 7}, "identity.seed = 7"),
        ("notice", {"signal": "KILL", "period": 1}, "signal 'KILL' cannot be a notice; use one of TERM"),
        ("notice", {"signal": "TERM"}, "no field 'period'"),
        ("notice", {"signal": "TERM", "period": -1}, "period: duration -1"),
        ("notice", {"signal": "TERM", "period": 1, "x": 1}, "unknown field 'notice.x'"),
        ("restart_source", "pbs", "restart_source 'pbs' is unknown; use environment or slurm"),
        ("watch_interval", 0, "watch_interval 0 is no time at all"),
        ("watch_interval", True, "watch_interval: duration True"),
        ("scan_timeout", "soon", "scan_timeout: duration 'soon'"),
        ("command", ["x"], "unknown field 'command'; it has base, "),
    ],
)
def test_another_document_is_a_usage_error_that_names_document_field_and_value(
    name: str, value: object, why: str
) -> None:
    document: dict[str, Any] = {**json.loads(SUBMISSION.encode()), name: value}
    with pytest.raises(UsageError, match=f"^submission s.json.*{why}") as refused:
        Submission.decode(json.dumps(document).encode(), "s.json")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_document_is_a_usage_error(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"^submission s\.json "):
        Submission.decode(data, "s.json")


@pytest.mark.parametrize("signal", ["KILL", "SIGTERM", "term", ""])
def test_only_the_signals_of_the_design_are_a_notice(signal: str) -> None:
    with pytest.raises(UsageError, match="cannot be a notice"):
        Notice(signal)
