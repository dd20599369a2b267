"""The end of a submission, as rules look at it: the cause, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.state import Landing, SubmissionState


@dataclass(frozen=True)
class End:
    """How the newest submission or execution ended."""

    cause: Cause
    restart: int | None
    at: datetime | None
    exit_code: int | None
    detail: str

    @property
    def told(self) -> str:
        """Its detail as the end of a sentence."""
        return f": {self.detail}" if self.detail else ""

    @property
    def told_of_failure(self) -> str:
        """What there is to say behind the outcome ``failed``: that word is not said twice."""
        return self.detail or "no exit is known" if self.cause is Cause.FAILED else f"{self.cause}{self.told}"


def end_of(submission: SubmissionState) -> End | None:
    """How a submission ended, as far as it decides what comes next; None while it is on its way or lives."""
    if submission.landing in (Landing.REFUSED, Landing.ABANDONED):
        return End(Cause.LAUNCH_FAILED, None, submission.settled_at, None, submission.detail)
    execution = submission.deciding if not submission.live else None
    if execution is None and not submission.live and submission.given_up:
        return End(Cause.LAUNCH_FAILED, None, submission.settled_at, None, submission.detail)
    if execution is None or execution.ended is None:
        return None
    ended = execution.ended
    code = ended.exit.code if ended.exit is not None else None
    return End(ended.cause, execution.restart, execution.ended_at, code, ended.detail)
