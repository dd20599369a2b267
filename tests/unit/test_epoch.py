"""The epoch orders executions and fits into 63 bits; nothing that no execution can have is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.epoch import MAX_EPOCH, MAX_GENERATION, Epoch, check_restart

epochs = some.builds(Epoch, some.integers(0, MAX_GENERATION), some.integers(1, 999_999), some.integers(0, 999_999))


@given(epochs)
def test_an_epoch_survives_its_number_and_its_digits(epoch: Epoch) -> None:
    assert Epoch.of(epoch.number) == epoch
    assert Epoch.parse(epoch.digits) == epoch
    assert len(epoch.digits) == 20
    assert epoch.number < 2**63


@given(epochs, epochs)
def test_number_digits_and_value_have_one_order_generation_first(one: Epoch, other: Epoch) -> None:
    by_parts = (one.generation, one.submission, one.restart) < (other.generation, other.submission, other.restart)
    assert (one < other) is (one.number < other.number) is (one.digits < other.digits) is by_parts


def test_the_number_is_that_of_the_format() -> None:
    assert Epoch(2, 3, 1).number == 2_000_003_000_001
    assert Epoch(0, 1, 0).digits == "00000000000001000000"
    assert str(Epoch(2, 3, 1)) == "g2n3r1"
    assert Epoch(MAX_GENERATION, 999_999, 999_999).number == MAX_EPOCH < 2**63
    assert Epoch.of(MAX_EPOCH).number + 10**12 > 2**63


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ((-1, 1, 0), "generation -1"),
        ((MAX_GENERATION + 1, 1, 0), f"generation {MAX_GENERATION + 1}"),
        ((0, 0, 0), "submission 0"),
        ((0, 1_000_000, 0), "submission 1000000"),
        ((0, 1, -1), "restart -1"),
        ((0, 1, 1_000_000), "restart 1000000"),
        ((True, 1, 0), "generation True"),
        ((0, 1.0, 0), "submission 1.0"),
        ((0, 1, "0"), "restart '0'"),
    ],
)
def test_parts_out_of_their_range_are_refused_by_name(parts: tuple[int, int, int], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named} is out of range"):
        Epoch(*parts)


@pytest.mark.parametrize("number", [-1, 0, 1, 999_999, 1_000_000_000_000, MAX_EPOCH + 1, 2**63, 10**30])
def test_a_number_that_no_execution_can_have_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=f"epoch {number} is not one"):
        Epoch.of(number)


@pytest.mark.parametrize(
    "digits", ["", "1", "0" * 19 + "1", " " + "0" * 19, "+" + "0" * 19, "0" * 21, "٠" * 20, "²" * 20, "9" * 20]
)
def test_digits_that_are_no_epoch_are_malformed(digits: str) -> None:
    with pytest.raises(MalformedName, match="epoch"):
        Epoch.parse(digits)


def test_a_restart_is_checked_alone() -> None:
    assert check_restart(999_999) == 999_999
    for restart in (-1, 1_000_000, True):
        with pytest.raises(UsageError, match="restart"):
            check_restart(restart)
