"""Names split one way only, and what cannot be named is refused with the way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.names import (
    attempt_of,
    check_lineage,
    check_path,
    check_token,
    decode_part,
    encode_part,
    new_nonce,
    new_token,
    split_attempt,
)
from prefect_dispatch.format.printable import printable, shorten

TOKEN = "k3v7q2m5x4c6b7a2"
writable = some.text(some.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a--b", "x" * 40, "2026-01-31"])
def test_lineage_names_are_taken(name: str) -> None:
    assert check_lineage(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "x" * 41, "é", "a\n", "{date}", " a", 5, None, "a\0"]
)
def test_other_lineage_names_are_refused_in_one_line(name: object) -> None:
    with pytest.raises(UsageError, match="not a lineage name; use 1 to 40 of a-z") as refused:
        check_lineage(name)  # type: ignore[arg-type]
    assert repr(name) in str(refused.value) and "\n" not in str(refused.value)


def test_new_tokens_and_nonces_are_of_their_form_and_differ() -> None:
    assert len({check_token(new_token()) for _ in range(50)}) == 50
    assert len({new_nonce() for _ in range(50)}) == 50
    assert len(new_nonce()) == 16


@pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "a", TOKEN.upper(), "0" * 16, "a" * 15 + "\n", None])
def test_other_tokens_are_refused(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        check_token(token)


@given(some.integers(0, 999_999))
def test_an_attempt_splits_into_what_it_was_made_of(restart: int) -> None:
    assert split_attempt(attempt_of(TOKEN, restart)) == (TOKEN, restart)


@pytest.mark.parametrize("restart", [-1, 1_000_000, True])
def test_no_attempt_is_made_that_could_not_be_split(restart: int) -> None:
    with pytest.raises(UsageError, match="restart"):
        attempt_of(TOKEN, restart)


@pytest.mark.parametrize("attempt", ["", TOKEN, f"{TOKEN}-", f"{TOKEN}-01", f"{TOKEN}-1000000", f"{TOKEN}-0\n", "x-0"])
def test_other_attempts_are_malformed(attempt: str) -> None:
    with pytest.raises(MalformedName, match="attempt"):
        split_attempt(attempt)


@given(writable)
def test_a_part_survives_base32_which_splits_one_way_only(text: str) -> None:
    part = encode_part(text)
    assert decode_part(part) == text
    assert set(part) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


@given(some.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=1, max_size=24))
def test_a_part_has_one_spelling_or_is_malformed(part: str) -> None:
    try:
        text = decode_part(part)
    except MalformedName:
        return
    assert encode_part(text) == part


@pytest.mark.parametrize("part", ["", "a", "me", "ME======", "M1", "MF", "A", "ABC", "74", "ME\n", "M E"])
def test_other_parts_are_malformed(part: str) -> None:
    with pytest.raises(MalformedName):
        decode_part(part)


@pytest.mark.parametrize(
    "path",
    ["a", "exec/x/step 1", "[x]", "'\"", "a\nb", "é", "e\u0301", "-a", ".a", "...", "a" * 133, "é" * 66 + "a"],
)
def test_paths_of_saves_are_taken_as_they_are(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "not relative and normalised"),
        ("/a", "not relative and normalised"),
        ("a/", "not relative and normalised"),
        ("a//b", "not relative and normalised"),
        ("./a", "not relative and normalised"),
        ("a/../b", "not relative and normalised"),
        ("..", "not relative and normalised"),
        ("a\0b", "contains NUL"),
        ("\ud800", "is not UTF-8"),
        ("a" * 134, "has 134 bytes and a publication's name holds at most 133"),
        ("é" * 67, "has 134 bytes"),
    ],
)
def test_other_paths_are_refused_with_the_reason(path: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        check_path(path)
    assert repr(path) in str(refused.value)


@given(some.text())
def test_printable_text_is_one_harmless_line(text: str) -> None:
    assert printable(text).isprintable()


def test_a_value_in_an_error_is_cut_and_never_fails() -> None:
    assert shorten("a\nb") == r"'a\nb'"
    assert len(shorten("x" * 10_000)) == 101
    assert shorten(10**5000) == "a int beyond reason"
