"""Where a path lies in a bucket: URLs of roots, and keys that every server keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_dispatch.errors import MalformedName, StoreError, UsageError
from prefect_dispatch.stores.s3_place import S3Place, is_plain, quote, unquote

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://saves", "saves", ""),
        ("s3://saves/", "saves", ""),
        ("s3://my.saves-2/a/b c", "my.saves-2", "a/b c"),
        ("s3://saves/runs/~me/", "saves", "runs/~me"),
    ],
)
def test_a_root_is_a_bucket_and_a_prefix(url: str, bucket: str, prefix: str) -> None:
    place = S3Place.parse(url)
    assert (place.bucket, place.prefix) == (bucket, prefix)
    assert S3Place.parse(place.url) == place


@pytest.mark.parametrize(
    "url",
    ["s3:/saves", "s3://", "s3://Saves/x", "s3://a/x", "s3://saves//x", "s3://saves/../x", "s3://saves/a?b", "gs://b"],
)
def test_what_is_no_root_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="root"):
        S3Place.parse(url)


def test_a_key_begins_with_the_prefix_and_is_no_longer_than_s3_takes() -> None:
    place = S3Place.parse("s3://saves/runs/digits")
    assert place.key("pub/x") == "runs/digits/pub/x"
    assert place.key("") == "runs/digits"
    with pytest.raises(StoreError, match="1024"):
        place.key("/".join(["é" * 120] * 5))


@given(NAMES)
def test_every_name_comes_back_from_its_key(name: str) -> None:
    part = quote(name)
    assert unquote(part) == name
    assert not any(ord(letter) < 32 or letter in "?\\\x7f\uffff" for letter in part)


@given(NAMES, NAMES)
def test_what_is_behind_a_plain_name_has_a_key_behind_its_own(name: str, after: str) -> None:
    if is_plain(after) and name > after:
        assert quote(name).encode() > quote(after).encode()


@pytest.mark.parametrize("part", ["~", "~0", "~zz", "a~41", "~C3", "~c3~a9"])
def test_a_key_of_no_name_is_refused(part: str) -> None:
    with pytest.raises(MalformedName):
        unquote(part)
