"""The publication marker: our exclusive, durable creation of a name beside the calls that it cannot do without."""

from __future__ import annotations

import os

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PUBLICATIONS
from prefect_dispatch.stores.posix import PosixStore
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting


def measure(setting: Setting) -> list[Line]:
    """Create the same names in two folders, through the ledger and by hand."""
    ours, bare = setting.folder / "ours", setting.folder / "bare"
    (bare / PUBLICATIONS).mkdir(parents=True)
    store = PosixStore(ours)
    store.probe()
    store.make_folder(PUBLICATIONS)
    ledger = store.ledger(PUBLICATIONS)
    root, pub = os.open(bare, os.O_RDONLY), os.open(bare / PUBLICATIONS, os.O_RDONLY)

    def by_hand(number: int) -> None:
        os.close(os.open(_name(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=pub))
        os.fsync(pub)
        os.fsync(root)

    try:
        pairs = take_pairs(lambda number: ledger.create(_name(number)), by_hand, setting.pairs(1000, 20), warm_up=10)
    finally:
        os.close(pub)
        os.close(root)
    return [
        Line(
            setting.row,
            "publication marker, POSIX",
            pairs.median_ours * 1e6,
            pairs.median_bare * 1e6,
            "µs",
            pairs.ratio,
            len(pairs),
            pairs.ratio,
            Target(1.2, "×"),
            "bare: open(O_CREAT|O_EXCL), close, fsync(pub), fsync(root), the two folders held open",
        )
    ]


def _name(number: int) -> str:
    return Publication(Epoch(0, 1, 0), number, f"exec/k3v7q2m5x4c6b7a2-0/checkpoint-{number}").name
