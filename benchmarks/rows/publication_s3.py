"""The publication marker on S3: our creation of a name beside the one request that it cannot do without."""

from __future__ import annotations

import obstore

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PUBLICATIONS
from rows.bucket import a_bucket
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting


def measure(setting: Setting) -> list[Line]:
    """Create the same names at two prefixes, through the ledger and by hand."""
    with a_bucket(setting) as bucket:
        store, bare = bucket.store(), bucket.bare
        ledger = store.ledger(PUBLICATIONS)

        def by_hand(number: int) -> None:
            obstore.put(bare, f"bare/pub/{_name(number)}", b"", mode="create", use_multipart=False)

        pairs = take_pairs(lambda number: ledger.create(_name(number)), by_hand, setting.pairs(500, 20), warm_up=10)
    return [
        Line(
            setting.row,
            "publication marker, S3",
            pairs.median_ours * 1e6,
            pairs.median_bare * 1e6,
            "µs",
            pairs.ratio,
            len(pairs),
            pairs.ratio,
            Target(1.2, "×"),
            "bare: one conditional PUT by obstore to the same server on the loopback",
        )
    ]


def _name(number: int) -> str:
    return Publication(Epoch(0, 1, 0), number, f"exec/k3v7q2m5x4c6b7a2-0/checkpoint-{number}").name
