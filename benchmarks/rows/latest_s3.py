"""Latest on S3: the save to resume from among very many publications, beside obstore's bare listing of them."""

from __future__ import annotations

import obstore

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PUBLICATIONS, exec_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from rows.bucket import a_bucket
from rows.line import Line, Target
from rows.pairs import take_pairs
from rows.setting import Setting

EXECUTIONS = 50


def measure(setting: Setting) -> list[Line]:
    """Ask for the latest of many publications of 50 executions; the newest one is whole."""
    publications = setting.choose(100_000, 1_000)
    with a_bucket(setting) as bucket:
        store, bare = bucket.store(), bucket.bare
        root = LineageRoot(store)
        root.prepare("")
        epoch, attempt = Epoch(0, EXECUTIONS + 1, 0), attempt_of(new_token(), 0)
        root.claim(epoch, attempt, "", "run")
        root.start(epoch, attempt, {})
        path = f"{exec_folder(attempt)}/checkpoint-1"
        bucket.fill([(store.place.key(f"{path}/model.bin"), b"weights")])
        newest = root.publish(epoch, attempt, path, 1)
        setting.tell(f"  making {publications} publications")
        pub = store.place.key(PUBLICATIONS)
        bucket.fill([(f"{pub}/{name}", b"") for name in _names(publications - 1)])

        def ask(number: int) -> None:
            found = root.latest().publication
            assert found == newest, found

        def by_hand(number: int) -> None:
            names = [entry["path"] for page in obstore.list(bare, pub, chunk_size=1000) for entry in page]
            assert len(names) == publications

        pairs = take_pairs(ask, by_hand, setting.pairs(7))
    return [
        Line(
            setting.row,
            f"latest among {publications:,} publications, S3",
            pairs.median_ours * 1e3,
            pairs.median_bare * 1e3,
            "ms",
            pairs.ratio,
            len(pairs),
            pairs.ratio,
            Target(1.2, "×"),
            "bare: obstore's listing of pub/ on the loopback, each entry's key taken and nothing else",
        )
    ]


def _names(count: int) -> list[str]:
    names = []
    for submission in range(1, EXECUTIONS + 1):
        attempt = attempt_of(new_token(), 0)
        for step in range(submission - 1, count, EXECUTIONS):
            names.append(Publication(Epoch(0, submission, 0), step, f"exec/{attempt}/checkpoint-{step}").name)
    return names
