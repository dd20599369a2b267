"""A manifest survives its bytes, and nothing is believed that no writer of ours can have written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedDocument, MalformedName, UnknownFormat
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import (
    Manifest,
    SavedFile,
    check_manifest_name,
    find_rewriting,
    manifest_prefix,
)
from prefect_dispatch.format.publication import MAX_STEP, Publication

PUBLICATION = Publication(Epoch(0, 1, 0), 40, "exec/k3v7q2m5x4c6b7a2-0/step-40")
FILES = (
    SavedFile(".meta", 0, 1, digest="0123456789abcdef"),
    SavedFile("model.pt", 5, 2),
    SavedFile("newest", 8, 3, link="model.pt"),
)
MANIFEST = Manifest(PUBLICATION, FILES, "0123456789abcdef", '{"a": 1}', {"seed": "sha256:7"})

names = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8)
paths = some.lists(names.filter(lambda name: name not in (".", "..")), min_size=3, max_size=3).map("/".join)
files = some.builds(
    SavedFile,
    paths,
    some.integers(0, 2**63),
    some.integers(-(2**63), 2**63),
    some.one_of(some.none(), names.filter(lambda name: name != "..")),
)


@given(
    some.lists(files, max_size=4, unique_by=lambda file: file.path).map(tuple),
    some.integers(0, MAX_STEP),
    some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    some.dictionaries(names, names, max_size=3),
    some.sampled_from(["", "exec/b"]),
)
def test_a_manifest_survives_its_bytes(
    saved: tuple[SavedFile, ...], step: int, state: str, identity: dict[str, str], source: str
) -> None:
    manifest = Manifest(Publication(Epoch(1, 2, 3), step, "a"), saved, "0" * 16, state, identity, source)
    assert Manifest.decode(manifest.encode(), "m") == manifest


def test_a_save_may_be_one_file_and_links_may_climb_as_far_as_they_lie_deep() -> None:
    single = (SavedFile("", 3, 1),)
    linked = (SavedFile("a/b/c", 3, 1, link="../../d"), SavedFile("d", 3, 1))
    for saved in (single, linked):
        manifest = Manifest(PUBLICATION, saved, "0" * 16, "", {})
        assert Manifest.decode(manifest.encode(), "m").files == saved


def test_an_older_manifest_has_no_source_and_was_published_in_place() -> None:
    assert Manifest.decode(json.dumps(without("source")).encode(), "m") == MANIFEST
    assert MANIFEST.source == PUBLICATION.path


@pytest.mark.parametrize(
    ("seconds", "names"),
    [
        ((10.0, 20.0), False),
        ((10.9, 20.9), False),
        ((0.0, 0.0), False),
        ((11.0, 20.0), True),
        ((10.0, 19.9), True),
    ],
)
def test_files_were_written_over_where_some_have_another_second_and_not_all(
    seconds: tuple[float, float], names: bool
) -> None:
    listed = (SavedFile("a", 1, 10_500_000_000), SavedFile("b", 1, 20_500_000_000), SavedFile("l", 1, 1, link="a"))
    seen = [(listed[0], int(seconds[0] * 1e9)), (listed[1], int(seconds[1] * 1e9)), (listed[2], 99 * 10**9)]
    assert (find_rewriting(seen) is not None) is names


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
        ("files", [{"path": "a\0", "size": 1, "mtime_ns": 1}], "no file of a save"),
        ("files", [{"path": "\ud800", "size": 1, "mtime_ns": 1}], "no file of a save"),
        ("files", [{"path": "\udcff", "size": 1, "mtime_ns": 1}], "no file of a save"),
        ("files", [{"path": "y/" + "é" * 128, "size": 1, "mtime_ns": 1}], "no file of a save"),
        ("files", [{"path": "/".join("d" * 66), "size": 1, "mtime_ns": 1}], "64 folders deep"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1}] * 2, "'a' twice"),
        ("files", [{"path": path, "size": 1, "mtime_ns": 1} for path in ("", "a")], "without a path"),
        ("files", [{"path": path, "size": 1, "mtime_ns": 1} for path in ("a/b/c", "a")], "'a' as a file and as a"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": "\0"}], "leaves its save"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": ""}], "leaves its save"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": "/etc/passwd"}], "leaves its save"),
        ("files", [{"path": "b/a", "size": 1, "mtime_ns": 1, "link": "../../x"}], "leaves its save"),
        ("files", [{"path": "", "size": 1, "mtime_ns": 1, "link": "x"}], "leaves its save"),
        ("source", "../x", "normalised"),
        ("source", 5, "source = 5"),
        ("state", "a\0b", "NUL"),
        ("state", "\ud800", "UTF-8"),
        ("state", "s" * 65537, "65537 bytes"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "link": 5}], "link = 5"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "digest": "0" * 15}], "digest = '000000000000000'"),
        ("files", [{"path": "a", "size": 1, "mtime_ns": 1, "digest": 5}], "digest = 5"),
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
