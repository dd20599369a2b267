"""What a hostile job plants in the place of files and folders: links, FIFOs, sockets, devices, giants."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

FILES = (
    "format.json",
    "claims/{second}",
    "meta/{attempt}/started.json",
    "meta/{attempt}/resume.json",
    "meta/{attempt}/journal/{entry}.json",
    "meta/{attempt}/saves/{manifest}",
    "pub/{publication}",
    "exec/{attempt}/step-2/model.bin",
)
FOLDERS = (
    "pub",
    "claims",
    "tmp",
    "meta",
    "meta/{attempt}",
    "meta/{attempt}/journal",
    "meta/{attempt}/saves",
    "meta/{attempt}/resume",
    "exec",
    "exec/{attempt}",
    "exec/{attempt}/step-2",
    "pruned",
)


def link_to(target: str) -> Callable:
    def plant(path: Path, victim) -> None:
        path.symlink_to(target.format(outside=victim.outside, name=path.name))

    return plant


def fifo(path: Path, victim) -> None:
    os.mkfifo(path)


def bound_socket(path: Path, victim) -> None:
    # A socket's path is 107 bytes at most, so it is bound from its folder.
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name[:100])
        if path.name[:100] != path.name:
            os.rename(path.name[:100], path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def device(path: Path, victim) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))


def folder(path: Path, victim) -> None:
    path.mkdir()


def giant(path: Path, victim) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


PLANTS = {
    "link-to-passwd": link_to("/etc/passwd"),
    "link-to-folder": link_to("{outside}"),
    "link-to-itself": link_to("{name}"),
    "dangling-link": link_to("{outside}/made"),
    "fifo": fifo,
    "socket": bound_socket,
    "device": device,
    "folder": folder,
    "giant": giant,
}


FOLDER_PLANTS = ("link-to-folder", "dangling-link", "fifo")
LOOKS = ("view", "advance", "latest", "check")


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
@pytest.mark.parametrize("place", FILES)
def test_nothing_in_the_place_of_a_file_harms(victim, unharmed, place, plant):
    # given
    path = victim.replace(victim.named(place))
    plant(path, victim)
    # when / then
    unharmed(only=LOOKS)


@pytest.mark.parametrize("plant", [PLANTS[name] for name in FOLDER_PLANTS], ids=FOLDER_PLANTS)
@pytest.mark.parametrize("place", FOLDERS)
def test_nothing_in_the_place_of_a_folder_harms(victim, unharmed, place, plant):
    # given
    path = victim.replace(victim.named(place))
    plant(path, victim)
    # when / then
    unharmed(only=LOOKS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
@pytest.mark.parametrize(
    "place", ["pub", "claims", "meta", "meta/{attempt}", "meta/{attempt}/journal", "exec/{attempt}"]
)
def test_folders_without_permission_stop_nobody_but_the_job_itself(victim, looker, place):
    # given a supervisor that is not root, which may read all but this
    nobody = 65534
    path = victim.own / victim.named(place)
    for folder in (victim.folder, *victim.folder.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    path.chmod(0)
    # when
    answer = looker.look(victim, user=nobody, only=["view", "status", "list", "latest", "check"])
    path.chmod(0o755)
    # then
    answer.pop("peak")
    assert [(name, each["error"]) for name, each in answer.items() if each["error"]] == []
    assert {each["code"] for each in answer.values()} <= {0, 65, 69, 74, 191}
    assert "ermission denied" in "".join(each["out"] + each["err"] for each in answer.values())
