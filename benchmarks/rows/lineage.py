"""A lineage that is open, for rows about its record and its supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.stores.port import Store
from prefect_dispatch.supervisor.clock import Clock
from prefect_dispatch.supervisor.record import Record

LINEAGE = "speed"


def open_record(store: Store, clock: Clock) -> Record:
    """A fresh view of the lineage's record."""
    return Record(store, store.ledger("open"), LINEAGE, clock)


def opened(capabilities: Capabilities, folder: Path, **fields: Any) -> Opened:
    """The fact that opens the lineage.

    Args:
        capabilities: its scheduler's.
        folder: its job's working folder, and where its root is.
        fields: of the spec, over those of a program that fails at once and is run again.
    """
    plain = {"lineage": LINEAGE, "command": ["sh", "-c", "exit 1"], "store": {"root": str(folder / "root")}}
    spec = JobSpec.read({**plain, **fields}, "job")
    return Opened(
        spec=spec,
        plan=plan(spec, capabilities, root_visible=False),
        identity=spec.identity_digests(),
        owner="benchmark",
        root=str(folder / "root"),
        record_root=str(folder / "root"),
        workdir=str(folder),
        scheduler={"type": capabilities.scheduler},
    )
