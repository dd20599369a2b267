"""Records that somebody has copied: a copy can be read, and nobody acts on it."""

from __future__ import annotations

import shutil

import pytest

from prefect_dispatch.errors import ReadOnlyLineage
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.stop_requests import ask_to_stop
from prefect_dispatch.testing.plain_opening import plain_opening


@pytest.fixture
def runs(tmp_path):
    runs = tmp_path / "runs"
    opening = plain_opening().model_copy(update={"root": str(runs), "record_root": str(runs)})
    open_record(str(runs), "digits", SystemClock()).append(opening)
    return runs


def look(root, lineage: str = "digits") -> Record:
    record = open_record(str(root), lineage, SystemClock())
    assert record.refresh().open
    return record


@pytest.mark.parametrize("copy", ["runs/digits-backup", "backup/digits"])
def test_nobody_stops_the_original_by_its_copy(runs, tmp_path, copy):
    # given
    (tmp_path / copy).parent.mkdir(exist_ok=True)
    shutil.copytree(runs / "digits", tmp_path / copy)
    # when
    root, _, lineage = copy.partition("/")
    record = look(tmp_path / root, lineage)
    with pytest.raises(ReadOnlyLineage, match=r"is a copy of .*digits.*; act on that one"):
        ask_to_stop(record, who="ada", note="")
    # then the original goes on, and can be stopped
    assert look(runs).refresh().stop is None
    assert ask_to_stop(look(runs), who="ada", note="").stop is not None


def test_one_that_was_moved_or_is_seen_by_another_path_is_no_copy(runs, tmp_path):
    (tmp_path / "link").symlink_to(runs)
    assert look(tmp_path / "link").unreadable is None
    runs.rename(tmp_path / "moved")
    assert look(tmp_path / "moved").unreadable is None
