from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_dispatch.format.message_lines import MAX_LINE_BYTES, MessageLines
from prefect_dispatch.format.messages import (
    CheckpointFiles,
    CheckpointSave,
    Fail,
    MessageKind,
    Progress,
    Refused,
    ResumeStatus,
    Status,
    parse_line,
)
from prefect_dispatch.format.resume_state import MAX_STATE_BYTES

LINES = st.sampled_from(
    [
        b"",
        b"openjd_progress: 5",
        b"[default0]:openjd_status: going",
        b"[r]:openjd_",
        b"openjd_",
        b"openj",
        b" openjd_progress: 5",
        b"x" * 200,
        b"[" + b"d" * 80 + b"]:openjd_progress: 5",
        b"openjd_openjd_progress: 5",
        b"\xff\xfe",
    ]
)


def found(chunks: list[bytes]) -> list[bytes]:
    lines = MessageLines()
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.finish()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"openjd_progress: 0", Progress(0.0)),
        (b"openjd_progress: 99.5", Progress(99.5)),
        (b"[default0]:openjd_progress: 50", Progress(50.0)),
        ("openjd_status: période 3".encode(), Status("période 3")),
        (b"openjd_status: one\x1b[31m", Status("one\\x1b[31m")),
        (b"openjd_fail: too hot \xff", Fail("too hot \\xff")),
        (b'openjd_checkpoint_save: {"state": "3,2"}', CheckpointSave("3,2", None)),
        (b'openjd_checkpoint_save: {"file": "/x/y"}', CheckpointSave("", "/x/y")),
        (b'openjd_checkpoint_save: {"state": "", "file": "a"}', CheckpointSave("", "a")),
    ],
)
def test_messages(line: bytes, message: object) -> None:
    assert parse_line(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" openjd_progress: 50",
        b"x openjd_progress: 50",
        b"openjd_progress",
        b"[a][b]:openjd_progress: 5",
        b"openjd: 5",
    ],
)
def test_case_17_other_lines_are_no_messages(line: bytes) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("payload", ["nan", "inf", "101", "100.1", "-1", "", "5e1", "1_0", "0x5", "٥", "half"])
def test_case_17_a_progress_that_is_none_is_refused(payload: str) -> None:
    assert isinstance(parse_line(f"openjd_progress: {payload}".encode()), Refused)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("[]", "not a JSON object"),
        ("{}", "neither a state nor a file"),
        ("{", "not JSON"),
        ('{"stat": "x"}', "unknown key 'stat'"),
        ('{"state": 5}', "state is not text"),
        ('{"state": "a\\u0000"}', "NUL"),
        ('{"state": "\\ud800"}', "UTF-8"),
        ('{"file": ""}', "not a path"),
        ('{"file": "\\ud800"}', "UTF-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_save_that_cannot_be_taken_is_refused_with_the_reason(payload: str, reason: str) -> None:
    refused = parse_line(f"openjd_checkpoint_save: {payload}".encode())

    assert isinstance(refused, Refused) and reason in refused.reason
    assert len(refused.line) <= 1000


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ('{"files": ["/a", "b"], "dirs": ["c/"]}', CheckpointFiles(("/a", "b"), ("c/",), reset=False)),
        ('{"files": ["a"], "mode": "ACCUMULATE"}', CheckpointFiles(("a",), (), reset=False)),
        ('{"mode": "RESET"}', CheckpointFiles((), (), reset=True)),
        ("{}", CheckpointFiles((), (), reset=False)),
    ],
)
def test_a_data_set_is_taken(payload: str, message: CheckpointFiles) -> None:
    assert parse_line(f"openjd_checkpoint_files: {payload}".encode()) == message


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('["a"]', "not a JSON object"),
        ('{"files": "a"}', "its files are not a list"),
        ('{"files": [""]}', "one of its files is not a path"),
        ('{"dirs": [5]}', "one of its dirs is not a path"),
        ('{"dirs": ["a\\u0000"]}', "one of its dirs is not a path"),
        ('{"file": ["a"]}', "unknown key 'file'; a data set has files, dirs and mode"),
        ('{"mode": "reset"}', "its mode is 'reset', and not ACCUMULATE or RESET"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_data_set_that_cannot_be_taken_is_refused_with_the_reason(payload: str, reason: str) -> None:
    refused = parse_line(f"openjd_checkpoint_files: {payload}".encode())

    assert isinstance(refused, Refused) and reason in refused.reason


def test_a_resume_status_is_one_of_two_words() -> None:
    for status in ResumeStatus:
        assert parse_line(f'openjd_checkpoint_resume_status: {{"status": "{status.value}"}}'.encode()) is status
    for payload in ("{}", '{"status": "resumed"}', '{"status": null}', "RESUMED"):
        assert isinstance(parse_line(f"openjd_checkpoint_resume_status: {payload}".encode()), Refused)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    refused = parse_line(b'openjd_checkpoint_save: {"state": "\xff"}')

    assert isinstance(refused, Refused) and refused.reason == "its payload is not UTF-8"


@pytest.mark.parametrize("text", ["x", "é", "\U0001f600"])
def test_case_18_a_state_of_64_kib_is_whole_and_a_byte_more_is_refused(text: str) -> None:
    fits = text * (MAX_STATE_BYTES // len(text.encode()))
    for escape in (False, True):
        message = parse_line(b"openjd_checkpoint_save: " + json.dumps({"state": fits}, ensure_ascii=escape).encode())
        assert message == CheckpointSave(fits, None)
        refused = parse_line(
            b"openjd_checkpoint_save: " + json.dumps({"state": fits + "x"}, ensure_ascii=escape).encode()
        )
        assert isinstance(refused, Refused) and "65537 bytes" in refused.reason


def test_every_kind_is_taken_or_said_to_be_missing() -> None:
    for kind in MessageKind:
        answer = parse_line(f"openjd_{kind.value}: ~".encode())
        assert answer is not None, kind


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=8),
    LINES,
    st.integers(0, 2**32),
    st.booleans(),
)
def test_the_lines_found_do_not_depend_on_how_the_output_is_cut(
    lines: list[tuple[bytes, bytes]], last: bytes, seed: int, finely: bool
) -> None:
    data = b"".join(line + end for line, end in lines) + last
    cuts = random.Random(seed)
    chunks, rest = [], data
    while rest:
        size = 1 if finely else cuts.randint(1, 150)
        chunks.append(rest[:size])
        rest = rest[size:]

    wanted = [line for line in data.replace(b"\r", b"\n").split(b"\n") if parse_line(line) is not None]

    assert [line for line in found(chunks) if parse_line(line) is not None] == wanted
    assert found([data]) == found(chunks)


def test_a_message_line_that_is_too_long_comes_out_cut_and_is_refused() -> None:
    chunks = [b"openjd_status: ", *[b"x" * 100_000] * 20, b"\nopenjd_progress: 5\n"]

    too_long, progress = found(chunks)

    assert len(too_long) == MAX_LINE_BYTES + 1
    refused = parse_line(too_long)
    assert isinstance(refused, Refused) and "longer than" in refused.reason
    assert parse_line(progress) == Progress(5.0)
    assert found([b"".join(chunks)]) == [too_long, progress]


def test_a_chunk_full_of_the_keyword_is_searched_in_linear_time() -> None:
    chunk = b"openjd_" * 150_000

    assert found([b"x" + chunk] * 3) == []
