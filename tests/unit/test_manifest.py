"""A manifest survives its bytes, and nothing is believed that no writer of ours can have written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedDocument, MalformedName, UnknownFormat
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import Manifest, SavedFile, check_manifest_name, manifest_prefix
from prefect_dispatch.format.publication import MAX_STEP, Publication

PUBLICATION = Publication(Epoch(0, 1, 0), 40, "exec/k3v7q2m5x4c6b7a2-0/step-40")
FILES = (SavedFile(".meta", 0, 1), SavedFile("model.pt", 5, 2), SavedFile("newest", 8, 3, link="model.pt"))
MANIFEST = Manifest(PUBLICATION, FILES, "0123456789abcdef", '{"a": 1}', {"seed": "sha256:7"})

names = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8)
paths = some.lists(names.filter(lambda name: name not in (".", "..")), max_size=3).map("/".join)
# Bytes that are not UTF-8 are read from a folder as these.
odd_paths = some.binary(min_size=1, max_size=6).map(
    lambda raw: raw.replace(b"/", b"x").replace(b"\0", b"x").replace(b".", b"x").decode("utf-8", "surrogateescape")
)
files = some.builds(
    SavedFile,
    some.one_of(paths, odd_paths),
    some.integers(0, 2**63),
    some.integers(-(2**63), 2**63),
    some.one_of(some.none(), names),
)


@given(
    some.lists(files, max_size=4).map(tuple),
    some.integers(0, MAX_STEP),
    some.text(some.characters(exclude_categories=["Cs"])),
    some.dictionaries(names, names, max_size=3),
)
def test_a_manifest_survives_its_bytes(
    saved: tuple[SavedFile, ...], step: int, state: str, identity: dict[str, str]
) -> None:
    manifest = Manifest(Publication(Epoch(1, 2, 3), step, "a"), saved, "0" * 16, state, identity)
    assert Manifest.decode(manifest.encode(), "m") == manifest


def test_its_name_tells_step_path_and_writer() -> None:
    assert MANIFEST.name == check_manifest_name(MANIFEST.name)
    assert MANIFEST.name.startswith(f"{40:020d}-") and MANIFEST.name.endswith("-0123456789abcdef.json")
    assert MANIFEST.name.startswith(manifest_prefix(PUBLICATION))
    assert manifest_prefix(PUBLICATION) != manifest_prefix(Publication(PUBLICATION.epoch, 40, "other"))
    assert MANIFEST.size == 13


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(MANIFEST.encode()).items() if key != name}


@pytest.mark.parametrize("name", ["format", "epoch", "step", "path", "files", "nonce", "state", "identity"])
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(MalformedDocument, match=f"the place has .*{name}"):
        Manifest.decode(json.dumps(without(name)).encode(), "the place")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("epoch", 1, "epoch 1 is not one"),
        ("epoch", "1000000", "epoch = '1000000'"),
        ("step", True, "step = True"),
        ("step", -1, "step -1"),
        ("path", "../x", "normalised"),
        ("path", "a" * 134, "134 bytes"),
        ("path", "\ud800", "UTF-8"),
        ("files", {}, "files"),
        ("files", ["x"], "not an object"),
        ("files", [{"path": "../x", "size": 1, "mtime_ns": 1}], "outside its save"),
        ("files", [{"path": "/etc/passwd", "size": 1, "mtime_ns": 1}], "outside its save"),
        ("files", [{"path": "a\0", "size": 1, "mtime_ns": 1}], "no file system"),
        ("files", [{"path": "\ud800", "size": 1, "mtime_ns": 1}], "no file system"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": "\0"}], "no file system"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": 5}], "link = 5"),
        ("files", [{"path": "a", "size": -1, "mtime_ns": 1}], "size -1"),
        ("files", [{"path": "a", "size": 1.5, "mtime_ns": 1}], "size = 1.5"),
        ("files", [{"path": "a", "size": 1}], "mtime_ns"),
        ("nonce", "../../x", "nonce"),
        ("identity", {"seed": 7}, "identity.seed = 7"),
        ("state", None, "state"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(name: str, value: object, why: str) -> None:
    with pytest.raises(MalformedDocument, match=f"^the place.*{why}"):
        Manifest.decode(json.dumps({**without(name), name: value}).encode(), "the place")


def test_a_newer_manifest_is_told_apart_from_a_broken_one() -> None:
    with pytest.raises(UnknownFormat, match="update prefect-dispatch"):
        Manifest.decode(json.dumps({**without("format"), "format": 2}).encode(), "m")


@pytest.mark.parametrize("name", ["", "x.json", MANIFEST.name + "x", MANIFEST.name.upper(), MANIFEST.name + "\n"])
def test_other_names_are_malformed(name: str) -> None:
    with pytest.raises(MalformedName, match=r"saves/.*move it away") as malformed:
        check_manifest_name(name)
    assert str(malformed.value).isprintable()
