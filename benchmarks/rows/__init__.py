"""The rows of the table, in its order: a name for ``--only``, and what measures it."""

from __future__ import annotations

from collections.abc import Callable

from rows import helper_start, holds, latest, not_built, publication, record, relay, replacement, save, silence
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
    "holds": holds.measure,
    "not-built": not_built.measure,
}
