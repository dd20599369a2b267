"""A whole save: files and folders made durable, manifest and marker, beside a bare loop of fsyncs over the files."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.stores.layout import exec_folder
from rows.execution import Started, start_execution, write_save
from rows.line import Line
from rows.pairs import take_pairs
from rows.setting import Setting

FILE_BYTES = 256 * 1024


def measure(setting: Setting) -> list[Line]:
    """Publish fresh saves of one file and of many."""
    counts = setting.choose((1, 16, 128), (1, 4))
    return [_measure(setting, files) for files in counts]


def _measure(setting: Setting, files: int) -> Line:
    count = setting.pairs(40)
    execution = start_execution(setting.folder / f"ours-{files}")
    other = setting.folder / f"bare-{files}"
    for number in range(count + 1):
        write_save(execution.folder / f"checkpoint-{number}", files, FILE_BYTES)
        write_save(other / f"checkpoint-{number}", files, FILE_BYTES)
    pairs = take_pairs(
        lambda number: _publish(execution, number), lambda number: _sync(other / f"checkpoint-{number}"), count
    )
    return Line(
        setting.row,
        f"whole save published, {files} × {FILE_BYTES // 1024} KiB, per file",
        pairs.median_ours * 1e6 / files,
        pairs.median_bare * 1e6 / files,
        "µs",
        pairs.ratio,
        len(pairs),
        note="bare: fsync of each file and of their folder, no manifest, no name",
    )


def _publish(execution: Started, number: int) -> None:
    path = f"{exec_folder(execution.attempt)}/checkpoint-{number}"
    execution.root.publish(execution.epoch, execution.attempt, path, number)


def _sync(folder: Path) -> None:
    for place in (*sorted(folder.iterdir()), folder):
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
