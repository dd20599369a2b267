"""Reporting: the helper's last word, left beside the record where it can reach that."""

from __future__ import annotations

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.journal import ExitNote
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.report import Report
from prefect_dispatch.format.submission import Submission
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.opening import join_root, open_store
from prefect_dispatch.stores.reports import leave_report

_MOST_TOLD = 2000


def report_end(submission: Submission, execution: Execution, note: ExitNote, saving: Saving, told: str) -> str:
    """Leave a report and return a line that says whether it could be left. A failure changes nothing else."""
    place = join_root(submission.record_root, submission.lineage)
    try:
        published = len({manifest.publication for manifest in saving.published()})
        leave_report(open_store(place), Report(execution.attempt, note, published, printable(told, _MOST_TOLD)))
    except (DispatchError, OSError) as error:
        return f"no report is left in {place}: {printable(str(error))}"
    return f"report left in {place}"
