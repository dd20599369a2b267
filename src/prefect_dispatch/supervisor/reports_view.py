"""What a supervisor learns from reports, where it cannot see the checkpoint root."""

from __future__ import annotations

import logging

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.port import Store
from prefect_dispatch.stores.reports import read_report
from prefect_dispatch.supervisor.attempt_view import MOST_DETAIL, last_word_of
from prefect_dispatch.supervisor.root_look import MOST_FAULT

_log = logging.getLogger(__name__)


class ReportsView:
    """The reports of a lineage. What cannot be read tells nothing.

    Args:
        store: the lineage's record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def last_word(self, attempt: str) -> LastWord | None:
        """What an execution said of its end; None where it left no report."""
        try:
            report = read_report(self._store, attempt)
        except DispatchError as error:
            _log.info("%s", printable(str(error), MOST_FAULT), extra={"action": "report.unreadable"})
            return None
        if report is None:
            return None
        return last_word_of(report.note, f": {printable(report.told, MOST_DETAIL)}" if report.told else "")
