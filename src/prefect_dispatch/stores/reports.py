"""Reports: the helper's last words beside the record, where a supervisor cannot see the checkpoint root."""

from __future__ import annotations

from typing import Optional

from prefect_dispatch.errors import Absent, MalformedDocument
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.printable import shorten
from prefect_dispatch.format.report import Report
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.layout import REPORTS
from prefect_dispatch.stores.port import Store


def leave_report(store: Store, report: Report) -> None:
    """Leave a report, once.

    Args:
        store: the lineage's record.
        report: the last word.

    Raises:
        Exists: this attempt has left one.
        StoreError: the store failed.
    """
    reach("report")
    create_once(store.ledger(REPORTS), f"{report.attempt}.json", report.fields())


def read_report(store: Store, attempt: str) -> Optional[Report]:
    """Read what an execution left, or None where it left nothing.

    Raises:
        MalformedDocument: it is not a report, or another attempt's.
        StoreError: it cannot be told.
    """
    what = f"{store.location}/{REPORTS}/{attempt}.json"
    try:
        document = read_document(store.ledger(REPORTS), f"{attempt}.json", what)
    except Absent:
        return None
    report = Report.of_fields(document, what)
    if report.attempt != attempt:
        raise MalformedDocument(f"{what} is of attempt {shorten(report.attempt)}; find out who wrote it")
    return report
