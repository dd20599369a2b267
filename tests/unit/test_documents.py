"""Documents go out in one spelling; coming in, any bytes are a document or a MalformedDocument."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedDocument, UnknownFormat
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES, decode, encode, field, text_map

texts = some.text(some.characters(exclude_categories=["Cs"]))
values = some.recursive(
    some.one_of(
        some.none(), some.booleans(), some.integers(), some.floats(allow_nan=False, allow_infinity=False), texts
    ),
    lambda inner: some.one_of(some.lists(inner, max_size=3), some.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@given(some.dictionaries(texts.filter(lambda name: name != "format"), values, max_size=4))
def test_a_document_survives_its_bytes_which_have_one_spelling(body: dict[str, object]) -> None:
    data = encode({"format": 1, **body})
    assert decode(data, "d") == {"format": 1, **body}
    assert encode(dict(reversed(list({"format": 1, **body}.items())))) == data
    assert data.count(b"\n") == 1 and data.endswith(b"\n")


def test_a_file_name_that_is_not_utf_8_survives() -> None:
    name = b"step-\xff\xe9".decode("utf-8", "surrogateescape")
    data = encode({"format": 1, "name": name})
    assert data.decode("utf-8")
    assert decode(data, "d")["name"] == name


@given(some.one_of(some.binary(max_size=60), values.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_a_document_or_malformed(data: bytes) -> None:
    try:
        document = decode(data, "the place")
    except MalformedDocument as error:
        assert str(error).startswith("the place ")
    except UnknownFormat:
        assert json.loads(data)["format"] > 1
    else:
        assert document["format"] == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a JSON document"),
        (b'{"format":1', "not a JSON document"),
        (b'{"format":1}x', "not a JSON document"),
        (b'{"format":1,"x":NaN}', "NaN is not a JSON number"),
        (b'{"format":1,"x":-Infinity}', "-Infinity is not a JSON number"),
        (b'{"format":1,"x":"\xff"}', "not a JSON document"),
        (b"[1]", "not a JSON object"),
        (b"{}", "format None"),
        (b'{"format":true}', "format True"),
        (b'{"format":"1"}', "format '1'"),
        (b'{"format":0}', "format 0"),
        (b'{"format":1.0}', "format 1.0"),
        (b"[" * 200_000, "not a JSON document"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "at most"),
    ],
)
def test_what_is_no_document_is_named(data: bytes, why: str) -> None:
    with pytest.raises(MalformedDocument, match=f"^the place .*{why}"):
        decode(data, "the place")


def test_a_newer_document_is_told_apart() -> None:
    with pytest.raises(UnknownFormat, match=r"the place has format 2; .*update"):
        decode(b'{"format":2}', "the place")


def test_a_field_is_of_exactly_its_type() -> None:
    document = {"n": 1, "flag": True, "text": "x", "map": {"a": "b"}}
    assert field(document, "n", int, "d") == 1
    assert field(document, "n", (int, float), "d") == 1
    assert text_map(document, "map", "d") == {"a": "b"}
    with pytest.raises(MalformedDocument, match="d has flag = True, which is not int"):
        field(document, "flag", int, "d")
    with pytest.raises(MalformedDocument, match="d has no field 'other'"):
        field(document, "other", int, "d")
    with pytest.raises(MalformedDocument, match=r"d has map\.a = 5, which is not text"):
        text_map({"map": {"a": 5}}, "map", "d")


def test_what_json_cannot_hold_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"x": float("nan")})
