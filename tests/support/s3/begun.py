"""An execution that has claimed its epoch and started, as saves and journals need one."""

from __future__ import annotations

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.stores.lineage_root import LineageRoot


def begin(root: LineageRoot, record: str = "") -> tuple[Epoch, str]:
    """Make a root whole, begin its first execution, and return that one's epoch and attempt."""
    root.prepare(record, "digits")
    epoch, attempt = Epoch(0, 1, 0), attempt_of(new_token(), 0)
    root.claim(epoch, attempt, record, "run")
    root.start(epoch, attempt, {})
    return epoch, attempt
