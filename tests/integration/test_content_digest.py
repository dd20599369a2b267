"""Digests of files and folders: what counts, what does not, what has no content, and what changes meanwhile."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prefect_dispatch.errors import IdentityUnknown
from prefect_dispatch.stores import content_digest
from prefect_dispatch.stores.content_digest import digest_of_path

NAMES = ["a b", "[x]", "é", "e\u0301", "with\nnewline", "-dash", ".dot", "'quote\"", "raw\udcff"]


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of files; names are given in the order in which they are created."""

    def make(name: str, *files: str) -> Path:
        folder = tmp_path / name
        for file in files:
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {Path(file).name.encode('utf-8', 'surrogateescape')!r}")
        return folder

    return make


def test_a_files_digest_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "big"
    content = os.urandom(3 * 1024 * 1024 + 17)
    path.write_bytes(content)
    said = subprocess.run(["sha256sum", "--", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert digest_of_path(str(path)) == f"sha256:{said}" == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_an_empty_file_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert digest_of_path(str(tmp_path / "empty")) == f"sha256:{hashlib.sha256().hexdigest()}"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_can_be_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("7")
    assert digest_of_path(str(tmp_path / name)) == f"sha256:{hashlib.sha256(b'7').hexdigest()}"


def test_a_folder_is_the_same_in_whatever_order_and_at_whatever_time_it_was_made(tree) -> None:
    one, other = tree("one", *NAMES, "d/x", "d/y"), tree("other", "d/y", "d/x", *reversed(NAMES))
    os.utime(one / "d" / "x", (1, 1))
    os.chmod(one / "d" / "y", 0o600)
    assert digest_of_path(str(one)) == digest_of_path(str(other))
    assert digest_of_path(str(one)).startswith("folder:")


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda folder: (folder / "a").write_text("other"),
    "a name": lambda folder: (folder / "a").rename(folder / "A"),
    "one more": lambda folder: (folder / "c").touch(),
    "one less": lambda folder: (folder / "a").unlink(),
    "an empty folder": lambda folder: (folder / "e").mkdir(),
    "executable": lambda folder: (folder / "a").chmod(0o755),
    "a link's target": lambda folder: [(folder / "l").unlink(), (folder / "l").symlink_to("b")],
    "a file for a link": lambda folder: [(folder / "l").unlink(), (folder / "l").write_text("a")],
    "deeper": lambda folder: (folder / "d" / "x").write_text("other"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_counts_in_a_folder(tree, change: Callable[[Path], object]) -> None:
    folder = tree("folder", "a", "b", "d/x")
    (folder / "l").symlink_to("a")
    before = digest_of_path(str(folder))
    change(folder)
    assert digest_of_path(str(folder)) != before


def test_links_in_a_folder_are_links_and_one_that_is_named_is_followed(tree, tmp_path: Path) -> None:
    # given a folder with links that lead outside, nowhere and back to itself
    folder = tree("folder", "a")
    (tmp_path / "outside").write_text("1")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "loop").symlink_to(".")
    before = digest_of_path(str(folder))
    # when what one of them leads to changes, nothing in the folder has
    (tmp_path / "outside").write_text("2")
    assert digest_of_path(str(folder)) == before
    # and a link to the folder is as good as the folder
    (tmp_path / "link").symlink_to("folder")
    assert digest_of_path(str(tmp_path / "link")) == before


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))


@pytest.mark.parametrize("make", [os.mkfifo, make_socket], ids=["fifo", "socket"])
def test_what_has_no_content_is_refused_wherever_it_is(tree, tmp_path: Path, monkeypatch, make) -> None:
    folder = tree("folder", "a")
    monkeypatch.chdir(folder)
    make(Path("special"))
    with pytest.raises(IdentityUnknown, match="'special' in it is no file, folder or link"):
        digest_of_path(str(folder))
    with pytest.raises(IdentityUnknown, match="is neither a file nor a folder"):
        digest_of_path(str(folder / "special"))


def test_a_device_is_not_even_opened(monkeypatch) -> None:
    monkeypatch.setattr(os, "open", lambda *given, **options: pytest.fail("opened"))
    with pytest.raises(IdentityUnknown, match="'/dev/zero' is neither a file nor a folder"):
        digest_of_path("/dev/zero")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityUnknown, match="nothing' cannot be read: No such file or directory"):
        digest_of_path(str(tmp_path / "nothing"))
    (tmp_path / "broken").symlink_to("nothing")
    with pytest.raises(IdentityUnknown, match="broken' cannot be read: No such file or directory"):
        digest_of_path(str(tmp_path / "broken"))


def test_a_folder_without_end_is_refused(tree, monkeypatch) -> None:
    monkeypatch.setattr(content_digest, "MOST_ENTRIES", 10)
    folder = tree("folder", *map(str, range(10)))
    with pytest.raises(IdentityUnknown, match="it holds more than 10 names"):
        digest_of_path(str(folder))


def test_a_folder_without_a_bottom_is_refused(tmp_path: Path, monkeypatch) -> None:
    # given folders in one another whose path is longer than a system call takes
    monkeypatch.chdir(tmp_path)
    for _ in range(100):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
    monkeypatch.chdir(tmp_path)
    # then the depth is what is refused, and 64 are read
    with pytest.raises(IdentityUnknown, match="lies more than 64 folders deep"):
        digest_of_path(str(tmp_path))


@pytest.fixture
def meanwhile(monkeypatch) -> Callable[[Callable[[int], object]], None]:
    """Does something whenever bytes of a file were read, with the number of the time, and waits no time at all."""

    def arrange(act: Callable[[int], object]) -> None:
        read, times = os.readv, 0

        def readv(*given):
            nonlocal times
            count = read(*given)
            if count:
                times += 1
                act(times)
            return count

        monkeypatch.setattr(os, "readv", readv)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)

    return arrange


def touch(path: Path, moment: int) -> None:
    os.utime(path, ns=(moment, moment))


def replace_file(path: Path) -> None:
    path.with_name("new").write_text("replaced")
    path.with_name("new").replace(path)


@pytest.mark.parametrize(
    "act",
    [
        lambda path: path.write_text("longer than before"),
        lambda path: touch(path, 5),
        replace_file,
    ],
    ids=["written", "touched", "replaced"],
)
@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
def test_what_changes_once_while_it_is_read_is_read_again(tree, meanwhile, act, whole: bool) -> None:
    # given
    folder = tree("folder", "a")
    path = folder / "a"
    named = str(folder if whole else path)
    meanwhile(lambda time: act(path) if time == 1 else None)
    # when
    found = digest_of_path(named)
    # then it is the digest of what is there now
    assert found == digest_of_path(named)


@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
def test_what_changes_every_time_is_named(tree, meanwhile, whole: bool) -> None:
    folder = tree("folder", "a")
    meanwhile(lambda time: touch(folder / "a", time))
    with pytest.raises(IdentityUnknown, match=r"changes while it is read: .*was written to"):
        digest_of_path(str(folder if whole else folder / "a"))


def test_a_name_that_comes_while_a_folder_is_read_is_seen(tree, meanwhile) -> None:
    folder = tree("folder", "a", "d/b")
    meanwhile(lambda time: (folder / "d" / "late").touch() if time == 2 else None)
    assert digest_of_path(str(folder)) == digest_of_path(str(folder))


def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(tree, meanwhile, tmp_path: Path) -> None:
    # given a folder that is swapped for a link to another one once what lies before it was read
    folder, other = tree("folder", "a", "d/b"), tree("other", "b")

    def swap(time: int) -> None:
        if time == 1:
            (folder / "d").rename(tmp_path / "away")
            (folder / "d").symlink_to(other)

    meanwhile(swap)
    # when it is read, then the link is a link
    found = digest_of_path(str(folder))
    (other / "b").write_text("changed")
    assert digest_of_path(str(folder)) == found
