"""One source of saves each, with its own fields; what a kind does not have is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import MAX_DURATION
from prefect_dispatch.format.saves import LATER_KINDS, SaveKind, Saves


@given(
    some.one_of(
        some.builds(Saves, some.just(SaveKind.EXPLICIT), overwritten=some.booleans()),
        some.builds(Saves, some.just(SaveKind.MESSAGES)),
        some.builds(Saves, some.just(SaveKind.MARKER), marker=some.sampled_from([".complete", "DONE", "é"])),
        some.builds(
            Saves,
            some.just(SaveKind.SETTLE),
            pattern=some.sampled_from(["*", "a/*.pt", "**/x"]),
            settle=some.timedeltas(timedelta(0), MAX_DURATION),
        ),
    )
)
def test_saves_survive_their_document(saves: Saves) -> None:
    assert Saves.decode(saves.encode()) == saves


def test_nothing_said_means_explicit_publishing() -> None:
    assert Saves.decode({}) == Saves(SaveKind.EXPLICIT)


@pytest.mark.parametrize("kind", LATER_KINDS)
def test_kinds_of_later_versions_are_refused_by_name(kind: str) -> None:
    with pytest.raises(UsageError, match=f"saves.kind '{kind}' is not in this version; use explicit, marker"):
        Saves.decode({"kind": kind})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"kind": "markr"}, r"saves\.kind 'markr' is unknown; use explicit, marker, settle, messages"),
        ({"kind": ["marker"]}, r"saves\.kind \['marker'\] is unknown"),
        ({"kind": None}, r"saves\.kind None is unknown"),
        ({"kind": "marker", "settle": "5s"}, r"saves\.settle is not a field of kind 'marker'; it has: marker"),
        ({"marker": "x"}, r"saves\.marker is not a field of kind 'explicit'; it has: overwritten"),
        ({"kind": "marker", "marker": ""}, r"saves\.marker '' is not a file name"),
        ({"kind": "marker", "marker": ".."}, r"saves\.marker '\.\.' is not a file name"),
        ({"kind": "marker", "marker": "a/b"}, r"saves\.marker 'a/b' is not a file name"),
        ({"kind": "marker", "marker": 5}, r"saves\.marker 5 is not a file name"),
        ({"kind": "settle", "pattern": "/x"}, r"saves\.pattern '/x' is not a glob relative"),
        ({"kind": "settle", "pattern": "a/../../x"}, r"saves\.pattern .* leaves the execution's folder"),
        ({"kind": "settle", "pattern": "a\0"}, r"saves\.pattern"),
        (
            {"kind": "messages", "overwritten": False},
            r"saves\.overwritten is not a field of kind 'messages'; it has: none",
        ),
        ({"overwritten": "no"}, r"saves\.overwritten 'no' is neither true nor false"),
        ({"kind": "settle"}, r"saves\.pattern is missing, which kind 'settle' needs"),
        ({"kind": "settle", "settle": "soon"}, r"saves\.settle: duration 'soon' is not one"),
    ],
)
def test_other_saves_are_refused_with_field_and_value(document: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=f"^{why}"):
        Saves.decode(document)
