"""A part of a name is base32 in one spelling only, so that a name is its text and a text its name."""

from __future__ import annotations

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_dispatch.errors import MalformedName
from prefect_dispatch.format.names import decode_part, encode_part

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=140))
def test_a_text_comes_back(text):
    assert decode_part(encode_part(text)) == text


@given(st.text(ALPHABET, min_size=1, max_size=12))
def test_what_is_read_is_what_the_standard_library_reads_in_its_one_spelling(part):
    try:
        expected = base64.b32decode(part + "=" * (-len(part) % 8)).decode()
        expected = expected if encode_part(expected) == part else None
    except (binascii.Error, UnicodeDecodeError):
        expected = None
    try:
        read = decode_part(part)
    except MalformedName:
        read = None
    assert read == expected


@pytest.mark.parametrize("part", ["", "me", "ME======", "M E", "ME\n", "M_E", "ME1", "+ME", "\uff2d\uff25", "MF"])
def test_another_spelling_is_refused(part):
    with pytest.raises(MalformedName):
        decode_part(part)
