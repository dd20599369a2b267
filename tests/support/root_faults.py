"""What the check of a checkpoint root calls a fault."""

from __future__ import annotations

from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.lineage_root import LineageRoot


def faults_of(root: LineageRoot) -> list[str]:
    """The faults of a root, without the notes, as ``dispatch-job check`` would print them."""
    return [str(fault) for fault in root.check() if fault.severity is Severity.FAULT]
