"""Durations and sizes are read as people write them, exactly, or refused with what could be written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import (
    MAX_DURATION,
    MAX_SIZE,
    describe_duration,
    parse_duration,
    parse_size,
    write_duration,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        ("90s", 90),
        ("90 s", 90),
        (" 30min ", 1800),
        ("5m", 300),
        ("4h", 14400),
        ("1h30min", 5400),
        ("1h 30min 5s", 5405),
        ("2d", 172800),
        ("1w", 604800),
        ("250ms", 0.25),
        ("0.5h", 1800),
        ("PT1H30M", 5400),
        ("PT90S", 90),
        ("P1D", 86400),
        ("P1W", 604800),
        ("P1DT0.5S", 86400.5),
        (timedelta(minutes=3), 180),
        (36500 * 86400, 36500 * 86400),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    ["", " ", "soon", "4 hours", "-1", "-5s", -1, "1h30", "h", "1.h", "5M", "1e3", "P", "PT", "P1DT", "P1M", "1:00",
     "٣s", True, None, [], float("nan"), float("inf"), 10**400, "9" * 400 + "h", "40000d", timedelta(-1)],
)  # fmt: skip
def test_another_duration_is_refused_in_one_line(written: str) -> None:
    with pytest.raises(UsageError, match="is not one; write 90, 90s") as refused:
        parse_duration(written)
    assert len(str(refused.value)) < 250


@given(some.timedeltas(timedelta(0), MAX_DURATION))
def test_a_written_duration_is_read_as_the_very_same(duration: timedelta) -> None:
    assert parse_duration(write_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "written"),
    [(timedelta(days=12), "1036800s"), (timedelta(microseconds=10), "0.00001s"), (timedelta(0), "0s")],
)
def test_a_written_duration_has_no_exponent(duration: timedelta, written: str) -> None:
    assert write_duration(duration) == written


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (1024, 1024),
        ("1024", 1024),
        ("10B", 10),
        ("1K", 1000),
        ("2GB", 2 * 10**9),
        ("512MiB", 512 * 2**20),
        ("16GiB", 16 * 2**30),
        ("16 GiB", 16 * 2**30),
        ("16Gi", 16 * 2**30),
        ("1.5KiB", 1536),
        ("1.1TB", 1_100_000_000_000),
        ("9007199254740993", 9007199254740993),
        ("1PiB", 2**50),
        (MAX_SIZE, MAX_SIZE),
    ],
)
def test_a_size_is_read_exactly(written: str, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written",
    ["", "big", "16iB", "16i", "16gib", "-1", -1, True, None, 1.5, "1,5GiB", "9" * 400 + "GiB", 2**63, "99999PiB", "٣"],
)
def test_another_size_is_refused_in_one_line(written: str) -> None:
    with pytest.raises(UsageError, match="is not one; write a number of bytes") as refused:
        parse_size(written)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0s"), (0.42, "0.4s"), (95, "95s"), (720, "12min"), (7500, "2h 5min"), (180_000, "2d 2h")],
)
def test_a_duration_is_told_as_coarsely_as_it_is_long(seconds: float, words: str) -> None:
    assert describe_duration(timedelta(seconds=seconds)) == words
