"""Identity: the digest of a large file and of a folder of many, beside hashlib and sha256sum over the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from prefect_dispatch.stores.content_digest import digest_of_path
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting

SMALL_FILE_BYTES = 16 * 1024
_PIECE = 1024 * 1024
_HASHLIB = "hashlib.file_digest of each file"
_SUM = "one sha256sum, its start included"


def measure(setting: Setting) -> list[Line]:
    """Digest what was just written, so that both find it in memory and neither waits for a disk."""
    megabytes = setting.choose(1024, 4)
    files = setting.choose(5000, 50)
    large, folder = setting.folder / "large", setting.folder / "many"
    _write(large, megabytes * _PIECE)
    folder.mkdir()
    for number in range(files):
        _write(folder / f"{number:05d}", SMALL_FILE_BYTES)
    one, many = f"digest of a file of {megabytes} MiB", f"digest of {files:,} files of {SMALL_FILE_BYTES // 1024} KiB"
    whole = sorted(folder.iterdir())
    return [
        _measure(setting, one, large, lambda: _hashlib([large]), _HASHLIB),
        _measure(setting, one, large, lambda: _sum([large]), _SUM),
        _measure(setting, many, folder, lambda: _hashlib(whole), _HASHLIB),
        _measure(setting, many, folder, lambda: _sum(whole), _SUM),
    ]


def _measure(setting: Setting, what: str, place: Path, bare: Callable[[], None], bare_name: str) -> Line:
    pairs = take_pairs(lambda _: digest_of_path(str(place)), lambda _: bare(), setting.pairs(5))
    return Line(
        setting.row,
        f"{what}, beside {bare_name.partition(',')[0].partition(' of')[0]}",
        pairs.median_ours * 1e3,
        pairs.median_bare * 1e3,
        "ms",
        pairs.ratio,
        len(pairs),
        pairs.ratio,
        Target(1.2, "×"),
        note=f"bare: {bare_name}; all in the page cache",
    )


def _hashlib(files: list[Path]) -> None:
    for path in files:
        with path.open("rb", buffering=0) as file:
            hashlib.file_digest(file, "sha256").digest()


def _sum(files: list[Path]) -> None:
    subprocess.run(["sha256sum", "--", *files], stdout=subprocess.DEVNULL, check=True)


def _write(path: Path, size: int) -> None:
    piece = os.urandom(min(size, _PIECE))
    with path.open("wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
