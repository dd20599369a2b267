"""An anchored spec means the same wherever it is read."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import SpecError
from prefect_dispatch.model.anchor import anchored
from prefect_dispatch.model.spec import InlineScheduler, InlineStore, JobSpec


def test_a_folder_whose_name_is_not_utf_8_is_one_clear_error():
    with pytest.raises(SpecError, match="not UTF-8"):
        anchored(spec(), PurePath("/jobs/q\udcff"))


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"lineage": "a", "command": ["x"], **fields})


@pytest.mark.parametrize(
    ("written", "place"),
    [
        (".", "/jobs/one"),
        ("runs", "/jobs/one/runs"),
        ("./runs/", "/jobs/one/runs"),
        ("../two", "/jobs/two"),
        ("a/../../../../x", "/x"),
        ("/abs/../olute", "/olute"),
        ("with space", "/jobs/one/with space"),
        ("s3://bucket/../x", "s3://bucket/../x"),
    ],
)
def test_places_become_absolute_relative_to_the_spec_s_folder(written: str, place: str) -> None:
    own = anchored(
        spec(
            workdir=written,
            store={"root": written, "record_root": written},
            scheduler={"type": "local", "slots": 2, "state_folder": written},
        ),
        PurePath("/jobs/one"),
    )
    assert own.workdir == place
    assert own.store == InlineStore(root=place, record_root=place)
    assert isinstance(own.scheduler, InlineScheduler)
    assert own.scheduler.model_dump() == {"type": "local", "slots": 2, "state_folder": place}


def test_blocks_and_what_was_left_out_stay() -> None:
    plain = spec(store="checkpoint-store/x", scheduler="local-scheduler/y")
    own = anchored(plain, PurePath("/jobs"))
    assert (own.store, own.scheduler) == (plain.store, plain.scheduler)
    half = anchored(spec(store={"root": "runs"}, scheduler={"type": "local"}), PurePath("/jobs"))
    assert half.store == InlineStore(root="/jobs/runs", record_root=None)
    assert half.scheduler == InlineScheduler(type="local")
    assert plain.workdir == "."


@given(some.lists(some.sampled_from(["a", "b c", "..", "."]), min_size=1, max_size=5).map("/".join))
def test_an_anchored_spec_is_anchored_once_and_for_all(place: str) -> None:
    own = anchored(spec(workdir=place, store={"root": place}), PurePath("/jobs/one"))
    assert anchored(own, PurePath("/elsewhere")) == own
    assert ".." not in PurePath(own.workdir).parts
