"""Latest: the save to resume from among very many publications, beside a bare listing of the same folder."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PUBLICATIONS, exec_folder
from rows.execution import start_execution, write_save
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting

EXECUTIONS = 50


def measure(setting: Setting) -> list[Line]:
    """Ask for the latest of many publications of 50 executions; the newest one is whole."""
    publications = setting.choose(100_000, 1_000)
    place = setting.folder / "root"
    setting.tell(f"  making {publications} publications")
    execution = start_execution(place, EXECUTIONS + 1)
    write_save(execution.folder / "checkpoint-1", 1, 1024)
    path = f"{exec_folder(execution.attempt)}/checkpoint-1"
    newest = execution.root.publish(execution.epoch, execution.attempt, path, 1)
    pub = place / PUBLICATIONS
    _fill(pub, publications - 1)

    def ask(number: int) -> None:
        found = execution.root.latest().publication
        assert found == newest, found

    pairs = take_pairs(ask, lambda number: _list(pub), setting.pairs(15))
    return [
        Line(
            setting.row,
            f"latest among {publications:,} publications, POSIX",
            pairs.median_ours * 1e3,
            pairs.median_bare * 1e3,
            "ms",
            pairs.ratio,
            len(pairs),
            pairs.ratio,
            Target(2, "×"),
            "bare: os.scandir over pub/, each entry's name taken and nothing else",
        )
    ]


def _fill(pub: Path, count: int) -> None:
    """Create the names without making them durable, which nobody measures here."""
    folder = os.open(pub, os.O_RDONLY)
    try:
        for submission in range(1, EXECUTIONS + 1):
            attempt = attempt_of(new_token(), 0)
            for step in range(submission - 1, count, EXECUTIONS):
                name = Publication(Epoch(0, submission, 0), step, f"exec/{attempt}/checkpoint-{step}").name
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder))
    finally:
        os.close(folder)


def _list(pub: Path) -> list[str]:
    with os.scandir(pub) as scan:
        return [entry.name for entry in scan]
