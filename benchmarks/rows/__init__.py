"""The rows of the table, in its order: a name for ``--only``, and what measures it."""

from __future__ import annotations

from collections.abc import Callable

from rows import (
    helper_start,
    latest,
    latest_s3,
    not_built,
    publication,
    publication_s3,
    record,
    record_s3,
    relay,
    replacement,
    save,
    silence,
    transfer_s3,
)
from rows.line import Line
from rows.setting import Setting

ROWS: dict[str, Callable[[Setting], list[Line]]] = {
    "publication": publication.measure,
    "save": save.measure,
    "latest": latest.measure,
    "start": helper_start.measure,
    "relay": relay.measure,
    "silence": silence.measure,
    "replacement": replacement.measure,
    "record": record.measure,
    "publication-s3": publication_s3.measure,
    "latest-s3": latest_s3.measure,
    "record-s3": record_s3.measure,
    "transfer-s3": transfer_s3.measure,
    "not-built": not_built.measure,
}
