"""Rotation as training frameworks do it: of what lies in the folder, the highest numbers are kept."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path


def numbered(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    """The saves in a folder, the lowest number first."""
    pattern = re.compile(re.escape(prefix) + r"([0-9]+)")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    matches = [(pattern.fullmatch(name), name) for name in names]
    return sorted((int(match.group(1)), folder / name) for match, name in matches if match)


def rotate(folder: Path, prefix: str, keep: int, spared: Path | None = None) -> None:
    """Delete all but the newest saves in a folder. Who else may have written them is not asked.

    Args:
        folder: where they lie.
        prefix: what their names begin with.
        keep: how many are kept.
        spared: one that is kept in any case.
    """
    for _, place in numbered(folder, prefix)[:-keep]:
        if place != spared:
            shutil.rmtree(place, ignore_errors=True)
