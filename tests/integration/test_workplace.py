"""What is cleared out of a workplace at an execution's end, and what stays since the store has it not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.workplace import Leftovers, clear_workplace

HOME = "exec/try-0"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "workplace"
    (place / HOME).mkdir(parents=True)
    return place


def entry(path: Path, name: str = "") -> SavedFile:
    """A file as the manifest lists it that is published now."""
    status = path.lstat()
    return SavedFile(name, status.st_size, status.st_mtime_ns, os.readlink(path) if path.is_symlink() else None)


def test_what_is_published_goes_and_the_workplace_with_it(place: Path) -> None:
    save = place / HOME / "save"
    save.mkdir()
    (save / "weights").write_text("1")
    (save / "current").symlink_to("weights")
    (place / HOME / "save.done").write_text("1")
    files = (entry(save / "weights", "weights"), entry(save / "current", "current"))

    left = clear_workplace(str(place), "try-0", {f"{HOME}/save": files}, {f"{HOME}/save.done": f"{HOME}/save"})

    assert left == Leftovers(str(place), 0, 0)
    assert not place.exists()


def test_a_file_that_took_the_place_of_a_link_stays(place: Path) -> None:
    # given a published save that was a link to weights, and newer weights that were put in its place since
    save = place / HOME / "current"
    save.symlink_to("old")
    files = (entry(save),)
    save.unlink()
    save.write_text("newest")
    # when
    left = clear_workplace(str(place), "try-0", {f"{HOME}/current": files}, {})
    # then
    assert save.read_text() == "newest"
    assert left == Leftovers(str(place / HOME), 1, 6)


def test_a_link_that_leads_elsewhere_since_stays(place: Path) -> None:
    save = place / HOME / "current"
    save.symlink_to("old")
    files = (entry(save),)
    save.unlink()
    save.symlink_to("new")

    assert clear_workplace(str(place), "try-0", {f"{HOME}/current": files}, {}).count == 1
    assert os.readlink(save) == "new"


def test_the_marker_of_a_save_that_stays_stays_with_it(place: Path) -> None:
    # given a save that was written anew, with its marker, after it was published
    save, marker = place / HOME / "last", place / HOME / "last.done"
    save.write_text("1")
    files = (entry(save),)
    save.write_text("newer")
    marker.write_text("2")
    # when
    left = clear_workplace(str(place), "try-0", {f"{HOME}/last": files}, {f"{HOME}/last.done": f"{HOME}/last"})
    # then
    assert (save.read_text(), marker.read_text(), left.count) == ("newer", "2", 2)


def test_it_is_told_where_all_of_what_is_left_lies(place: Path) -> None:
    for path in (place / HOME / "save", place / "meta" / "try-0" / "snap" / "1"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")

    assert clear_workplace(str(place), "try-0", {}, {}) == Leftovers(str(place), 2, 2)
