"""Transfers: a large save to a bucket and back, verified, beside boto3's transfer manager, which compares no digest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.s3_managed import ManagedStore
from rows.bucket import Bucket, a_bucket
from rows.line import Line, Target
from rows.pairs import Pairs, take_pairs
from rows.setting import Setting


def measure(setting: Setting) -> list[Line]:
    """Send one file and fetch it again."""
    size = setting.choose(2**30, 2**24)
    workplace = setting.folder / "workplace"
    source = workplace / "exec" / "a" / "save" / "model.bin"
    source.parent.mkdir(parents=True)
    workplace.chmod(0o700)
    block = os.urandom(2**20)
    with source.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
    with a_bucket(setting) as bucket:
        up, down = _move(bucket, workplace, source, setting)
    what = f"{size / 2**20:,.0f} MiB"
    note = (
        "bare: boto3's transfer manager with its own settings, to the same server on the loopback; the ratio is of "
        "times, the figure of speeds"
    )
    return [
        Line(
            setting.row, f"{what} {way}, S3", size / each.median_ours / 1e6, size / each.median_bare / 1e6, "MB/s",
            each.ratio, len(each), 1 / each.ratio, Target(0.9, "×", at_least=True), note,
        )
        for way, each in (("up", up), ("down", down))
    ]  # fmt: skip


def _move(bucket: Bucket, workplace: Path, source: Path, setting: Setting) -> tuple[Pairs, Pairs]:
    client, name = bucket.server.client(), bucket.server.bucket
    stores: list[ManagedStore] = []
    files: list[tuple[SavedFile, ...]] = []

    def send(number: int) -> None:
        stores.append(ManagedStore(bucket.store(), str(workplace)))
        files.append(stores[-1].sync("exec/a/save", stores[-1].files("exec/a/save")))

    def fetch(number: int) -> None:
        stores[number].copy("exec/a/save", f"meta/b/resume/{number}", files[number])
        shutil.rmtree(workplace / "meta")

    target = workplace / "fetched"
    up = take_pairs(send, lambda number: client.upload_file(str(source), name, f"bare/{number}"), setting.pairs(3))
    down = take_pairs(fetch, lambda number: client.download_file(name, f"bare/{number}", str(target)), setting.pairs(3))
    return up, down
