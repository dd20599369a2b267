from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.job.watch import Found, MarkerWatch, SettleWatch, watch_for


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settle(clock: Clock) -> SettleWatch:
    return SettleWatch("*", timedelta(seconds=10), clock)


def test_case_1_only_marked_saves_count_and_steps_are_numbers(tmp_path: Path) -> None:
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-100"):
        write(tmp_path / name / "weights")
        write(tmp_path / name / ".complete", name.rpartition("-")[2])
    for name in ("17", "handpicked", "tmp-checkpoint-12"):
        (tmp_path / name).mkdir()

    found = MarkerWatch(".complete").look(str(tmp_path))

    assert [save.step for save in found] == [9, 10, 100]


def test_a_marker_marks_its_folder_or_the_save_whose_name_it_carries_on(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "folder" / "DONE", "3\n")
    write(tmp_path / "deep" / "folder" / "inner" / "DONE", "99")
    write(tmp_path / "file.pt")
    write(tmp_path / "file.ptDONE", "4")
    (tmp_path / "tree").mkdir()
    write(tmp_path / "treeDONE", "5")
    write(tmp_path / "goneDONE", "6")

    found = MarkerWatch("DONE").look(str(tmp_path))

    assert found == [Found("deep/folder", 3, True), Found("file.pt", 4), Found("tree", 5)]


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_marker_with_nothing_in_it_yet_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path / "s" / ".complete", text)

    assert MarkerWatch(".complete").look(str(tmp_path)) == []


@pytest.mark.parametrize("text", ["twelve", "-1", "1.5", "1 2", str(2**63), "0x10", "٥", "9" * 80])
def test_a_marker_that_says_no_step_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    marker = write(tmp_path / "s" / ".complete", text)

    with pytest.raises(Unpublishable, match="decimal") as raised:
        MarkerWatch(".complete").look(str(tmp_path))
    assert str(marker) in str(raised.value)


def test_a_marker_of_the_executions_own_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / ".complete", "5")

    with pytest.raises(Unpublishable, match="own folder"):
        MarkerWatch(".complete").look(str(tmp_path))


def test_a_published_save_is_found_again_only_with_another_step(tmp_path: Path) -> None:
    watch = MarkerWatch(".complete")
    write(tmp_path / "last" / ".complete", "5")
    (found,) = watch.look(str(tmp_path))
    watch.done_with(found)

    assert watch.look(str(tmp_path)) == []
    write(tmp_path / "last" / ".complete", "6")
    assert watch.look(str(tmp_path)) == [Found("last", 6, True)]


def test_a_marker_that_is_written_anew_marks_a_save_anew_also_under_the_same_step(tmp_path: Path) -> None:
    watch = MarkerWatch(".complete")
    marker = write(tmp_path / "last" / ".complete", "5")
    (found,) = watch.look(str(tmp_path))
    watch.done_with(found)
    marker.unlink()
    os.utime(write(marker, "5"), ns=(7, 7))

    assert not watch.still_whole(str(tmp_path), found)
    assert watch.look(str(tmp_path)) == [found]


def test_only_a_regular_file_is_a_marker(tmp_path: Path) -> None:
    write(tmp_path / "real" / ".complete", "1")
    for name in ("fifo", "link", "folder", "socket"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo" / ".complete")
    (tmp_path / "link" / ".complete").symlink_to(tmp_path / "real" / ".complete")
    (tmp_path / "folder" / ".complete").mkdir()
    os.mkfifo(tmp_path / "fifo.complete")

    assert MarkerWatch(".complete").look(str(tmp_path)) == [Found("real", 1, True)]


@pytest.mark.parametrize("kind", ["marker", "settle", "settle in a save"])
def test_folders_without_end_hide_no_other_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, kind: str
) -> None:
    write(tmp_path / "s" / ".complete", "1")
    deep = write(tmp_path / "deep" / "file").parent
    monkeypatch.chdir(deep)
    for _ in range(1100):
        os.mkdir("d")
        os.chdir("d")
    monkeypatch.chdir(tmp_path)
    pattern = "**/.complete" if kind == "settle" else "*"
    watch = MarkerWatch(".complete") if kind == "marker" else SettleWatch(pattern, timedelta(0), clock)
    try:
        assert {"s", "s/.complete"} & {found.path for found in watch.look(str(tmp_path))}
    finally:
        subprocess.run(["rm", "-rf", str(deep)], check=True)


def test_a_marker_that_went_or_changed_is_no_longer_a_sign(tmp_path: Path) -> None:
    watch = MarkerWatch(".complete")
    marker = write(tmp_path / "last" / ".complete", "5")
    (found,) = watch.look(str(tmp_path))

    assert watch.still_whole(str(tmp_path), found)
    marker.write_text("6")
    assert not watch.still_whole(str(tmp_path), found)
    marker.unlink()
    assert not watch.still_whole(str(tmp_path), found)


def test_links_are_neither_followed_nor_taken_for_folders(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "s" / ".complete", "5")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "elsewhere")

    assert MarkerWatch(".complete").look(str(tmp_path / "folder")) == []


def test_a_save_has_settled_when_nothing_changed_for_that_long(
    tmp_path: Path, clock: Clock, settle: SettleWatch
) -> None:
    save = write(tmp_path / "a")
    assert settle.look(str(tmp_path)) == []
    clock.now = 9.9
    assert settle.look(str(tmp_path)) == []
    clock.now = 10.0
    assert settle.look(str(tmp_path)) == [Found("a", None)]

    settle.done_with(Found("a", None))
    clock.now = 100.0
    assert settle.look(str(tmp_path)) == []
    save.write_text("longer")
    assert settle.look(str(tmp_path)) == []
    clock.now = 110.0
    assert settle.look(str(tmp_path)) == [Found("a", None)]


@pytest.mark.parametrize("change", ["size", "time", "new", "gone", "renamed"])
def test_any_change_begins_the_wait_anew(tmp_path: Path, clock: Clock, settle: SettleWatch, change: str) -> None:
    first, second = write(tmp_path / "s" / "a"), write(tmp_path / "s" / "deep" / ".b")
    settle.look(str(tmp_path))
    clock.now = 9.0
    if change == "size":
        second.write_text("xx")
    elif change == "time":
        os.utime(second, ns=(1, 1))
    elif change == "new":
        write(tmp_path / "s" / "c")
    elif change == "gone":
        first.unlink()
    else:
        second.rename(tmp_path / "s" / "deep" / ".c")
    settle.look(str(tmp_path))

    clock.now = 18.9
    assert settle.look(str(tmp_path)) == []
    clock.now = 19.0
    assert settle.look(str(tmp_path)) == [Found("s", None)]


def test_saves_are_numbered_in_the_order_in_which_they_came_to_rest(
    tmp_path: Path, clock: Clock, settle: SettleWatch
) -> None:
    write(tmp_path / "z")
    settle.look(str(tmp_path))
    clock.now = 1.0
    write(tmp_path / "a")
    settle.look(str(tmp_path))
    clock.now = 20.0

    assert [save.path for save in settle.look(str(tmp_path))] == ["z", "a"]


def test_what_came_to_rest_unseen_is_in_the_order_of_its_last_change(tmp_path: Path, settle: SettleWatch) -> None:
    for name, seconds in (("z", 1), ("a", 3), ("m", 2)):
        os.utime(write(tmp_path / name / "old"), (0, 0))
        os.utime(write(tmp_path / name / "weights"), (seconds, seconds))

    assert [save.path for save in settle.look(str(tmp_path), ended_well=True)] == ["z", "m", "a"]


def test_names_that_differ_by_their_numbers_are_in_their_order_whatever_the_hosts_clock_did(
    tmp_path: Path, settle: SettleWatch
) -> None:
    for name, seconds in (("ck-9", 9000), ("other", 5000), ("ck-10", 1000), ("ck-11", 7000)):
        os.utime(write(tmp_path / name / "weights"), (seconds, seconds))

    found = [save.path for save in settle.look(str(tmp_path), ended_well=True)]

    assert found == ["ck-9", "other", "ck-10", "ck-11"]


def test_what_was_seen_later_is_later_whatever_the_hosts_clock_did(
    tmp_path: Path, clock: Clock, settle: SettleWatch
) -> None:
    os.utime(write(tmp_path / "z"), (9000, 9000))
    settle.look(str(tmp_path))
    clock.now = 1.0
    os.utime(write(tmp_path / "a"), (1000, 1000))

    assert [save.path for save in settle.look(str(tmp_path), ended_well=True)] == ["z", "a"]


def test_two_names_that_are_written_anew_in_turn_are_in_the_order_of_their_last_change(
    tmp_path: Path, settle: SettleWatch
) -> None:
    # given two slots that were published, each written anew since the last look, the second one first
    for seconds, name in enumerate(("slot-0", "slot-1")):
        os.utime(write(tmp_path / name), (seconds, seconds))
    for save in settle.look(str(tmp_path), ended_well=True):
        settle.done_with(save)
    for seconds, name in enumerate(("slot-1", "slot-0"), 5):
        os.utime(tmp_path / name, (seconds, seconds))
    # when
    found = settle.look(str(tmp_path), ended_well=True)
    # then
    assert [save.path for save in found] == ["slot-1", "slot-0"]


def test_what_changed_last_at_one_time_is_in_the_order_of_its_numbers(tmp_path: Path, settle: SettleWatch) -> None:
    names = ["ckpt-8.pt", "ckpt-9.pt", "ckpt-10.pt", "ckpt-10-1.pt", "ckpt-100.pt", "last", "last1"]
    for name in reversed(names):
        os.utime(write(tmp_path / name), (5, 5))

    found = [save.path for save in settle.look(str(tmp_path), ended_well=True)]

    assert found == ["ckpt-8.pt", "ckpt-9.pt", "ckpt-10-1.pt", "ckpt-10.pt", "ckpt-100.pt", "last", "last1"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*/model.pt", ["a/model.pt", "b/model.pt"]),
        ("**/model.pt", ["a/model.pt", "b/model.pt", "c/d/model.pt", "model.pt"]),
        ("c/**", ["c"]),
        ("[ab]", ["a", "b"]),
        (".*/model.pt", [".hidden/model.pt"]),
        ("./a/", ["a"]),
        ("?", ["a", "b", "c"]),
    ],
)
def test_a_pattern_is_a_glob_that_follows_no_link(
    tmp_path: Path, settle: SettleWatch, pattern: str, matches: list[str]
) -> None:
    for name in ("a", "b", ".hidden", "c/d"):
        write(tmp_path / name / "model.pt")
    write(tmp_path / "model.pt")
    write(tmp_path / "c" / "e")
    (tmp_path / "latest").symlink_to("a")
    watch = SettleWatch(pattern, timedelta(0), Clock())

    assert sorted(found.path for found in watch.look(str(tmp_path))) == matches


def test_after_a_good_end_what_lies_there_is_finished(tmp_path: Path, settle: SettleWatch) -> None:
    write(tmp_path / "a")
    (tmp_path / "empty").mkdir()

    assert settle.look(str(tmp_path), ended_well=True) == [Found("a", None)]


def test_what_lies_in_a_save_is_part_of_it(tmp_path: Path, clock: Clock) -> None:
    watch = SettleWatch("**", timedelta(0), clock)
    write(tmp_path / "s" / "deep" / "a")
    write(tmp_path / "s-2")

    assert [save.path for save in watch.look(str(tmp_path))] == ["s", "s-2"]


def test_a_folder_whose_name_is_a_pattern_is_no_pattern(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "[x]*"
    write(folder / "a.pt")

    assert SettleWatch("*.pt", timedelta(0), clock).look(str(folder)) == [Found("a.pt", None)]


def test_a_save_that_moves_on_after_the_look_is_not_whole(tmp_path: Path, clock: Clock) -> None:
    watch = SettleWatch("*", timedelta(0), clock)
    save = write(tmp_path / "a")
    (found,) = watch.look(str(tmp_path))

    assert watch.still_whole(str(tmp_path), found)
    save.write_text("longer")
    assert not watch.still_whole(str(tmp_path), found)


def test_the_program_itself_says_what_is_whole_in_the_other_kinds() -> None:
    assert watch_for(Saves(SaveKind.EXPLICIT)) is None
    assert watch_for(Saves(SaveKind.MESSAGES)) is None
