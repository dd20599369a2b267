"""The record on S3: from a fresh view of a long one to its folded state, beside the bare requests that this takes."""

from __future__ import annotations

import obstore

from prefect_dispatch.model.fold import FOLD_VERSION
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.record import SNAPSHOT_EVERY
from rows.bucket import a_bucket
from rows.line import Line, Target
from rows.lineage import LINEAGE, open_record
from rows.pairs import take_pairs
from rows.record import write_record
from rows.setting import Setting


def measure(setting: Setting) -> list[Line]:
    """Read a record of many facts."""
    facts = setting.choose(20_000, 200)
    setting.tell(f"  making a record of {facts:,} facts")
    place = setting.folder / LINEAGE
    PosixStore(place).probe()
    state = write_record(place, facts)
    with a_bucket(setting) as bucket:
        store, bare = bucket.store(f"runs/{LINEAGE}"), bucket.bare
        files = [path for path in place.rglob("*.json") if path.is_file()]
        bucket.fill([(store.place.key(str(path.relative_to(place))), path.read_bytes()) for path in files])
        record, snapshots = store.place.key("record"), store.place.key(f"fold/{FOLD_VERSION}")

        def fold(number: int) -> None:
            assert open_record(store, SystemClock()).refresh().seq == state.seq

        def by_hand(number: int) -> None:
            names = sorted(entry["path"] for page in obstore.list(bare, record) for entry in page)
            newest = max(entry["path"] for page in obstore.list(bare, snapshots) for entry in page)
            for name in [newest, *names[len(names) // SNAPSHOT_EVERY * SNAPSHOT_EVERY :]]:
                obstore.get(bare, name).bytes()

        pairs = take_pairs(fold, by_hand, setting.pairs(9))
    return [
        Line(
            setting.row,
            f"record of {facts:,} facts with snapshots, S3",
            pairs.median_ours * 1e3,
            pairs.median_bare * 1e3,
            "ms",
            pairs.ratio,
            len(pairs),
            pairs.median_ours * 1e3,
            Target(1000, "ms"),
            "bare: obstore's listings of its facts and snapshots, reading the newest snapshot and the facts behind it",
        )
    ]
