"""A completion's name says exactly which part is finished and by whom, and orders by key, then epoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.completion import MAX_KEY_BYTES, Completion
from prefect_dispatch.format.epoch import MAX_GENERATION, Epoch
from prefect_dispatch.format.names import encode_part

epochs = some.builds(Epoch, some.integers(0, MAX_GENERATION), some.integers(1, 999_999), some.integers(0, 999_999))
keys = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=36)
near = some.builds(
    Completion,
    some.sampled_from(["a", "b", "Z", "2", "é", "\U00010000", "\uffff"]),
    some.builds(Epoch, some.integers(0, 1), some.integers(1, 2), some.integers(0, 1)),
)


@given(keys, epochs)
def test_a_completion_survives_its_name(key: str, epoch: Epoch) -> None:
    completion = Completion(key, epoch)
    assert Completion.parse(completion.name) == completion
    assert len(completion.name.encode("ascii")) <= 255


@given(near, near)
def test_completions_order_by_key_bytes_then_epoch(one: Completion, other: Completion) -> None:
    def place(completion: Completion) -> tuple[bytes, int, int, int]:
        epoch = completion.epoch
        return completion.key.encode(), epoch.generation, epoch.submission, epoch.restart

    assert (one.order < other.order) is (place(one) < place(other))
    assert (one.name == other.name) is (one == other)


def test_a_key_of_146_bytes_fits_and_one_of_147_is_refused_naming_the_limit() -> None:
    assert len(Completion("a" * MAX_KEY_BYTES, Epoch(0, 1, 0)).name) == 255
    assert len(encode_part("a" * (MAX_KEY_BYTES + 1))) + 21 > 255
    with pytest.raises(UsageError, match=r"147 bytes.*at most 146"):
        Completion("a" * 147, Epoch(0, 1, 0))
    with pytest.raises(UsageError, match=r"148 bytes.*at most 146"):
        Completion("é" * 74, Epoch(0, 1, 0))


@pytest.mark.parametrize("key", ["", "a\0b", "\udc80"])
def test_what_can_be_no_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=r"^key .*part"):
        Completion(key, Epoch(0, 1, 0))


EPOCH = "00000000000001000000"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "not base32"),
        ("ME", "epoch '' .* 20 digits"),
        (f"ME-{EPOCH}-ME", "20 digits"),
        (f"ME-{EPOCH}.tmp", "20 digits"),
        (f"ME-{EPOCH}\n", "20 digits"),
        (f"ME-{EPOCH[1:]}", "20 digits"),
        (f"ME-{'0' * 20}", "submission 0"),
        (f"ME-{'9' * 20}", "generation"),
        (f"me-{EPOCH}", "not base32"),
        (f"MF-{EPOCH}", "one base32 spelling"),
        (f"{EPOCH}-ME", "not base32"),
        (f"{encode_part(chr(0))}-{EPOCH}", "NUL"),
        (f"{encode_part('a' * 147)}-{EPOCH}", "147 bytes"),
        ("\x1b[2J\nfine", "not base32"),
    ],
)
def test_other_names_are_malformed_and_named_in_one_printable_line(name: str, why: str) -> None:
    with pytest.raises(MalformedName, match=why) as malformed:
        Completion.parse(name)
    text = str(malformed.value)
    assert text.startswith("done/") and text.isprintable() and "move it away" in text
