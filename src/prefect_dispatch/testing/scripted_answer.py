"""What the scripted scheduler is to do with one call that changes something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from prefect_dispatch.errors import SchedulerError, SubmitRefused


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How one call of submit or requeue goes; made by the functions of this file.

    Attributes:
        takes_effect_after: when it has its effect, from the call on; None for never.
        error: what the call raises; None when it returns.
        hangs: whether the call never ends by itself, so that the caller has to give up.
    """

    takes_effect_after: timedelta | None = timedelta(0)
    error: SchedulerError | None = None
    hangs: bool = False


def accepts(takes_effect_after: timedelta = timedelta(0)) -> Answer:
    """It works, and can be seen from then on."""
    return Answer(takes_effect_after=takes_effect_after)


def refuses(text: str = "the partition is closed") -> Answer:
    """It is refused for certain, and has no effect."""
    return Answer(takes_effect_after=None, error=SubmitRefused(text))


def times_out(takes_effect_after: timedelta | None) -> Answer:
    """The caller gets an error that says nothing; the effect may come all the same, and late."""
    return Answer(takes_effect_after=takes_effect_after, error=SchedulerError("the scheduler did not answer in time"))


def hangs(takes_effect_after: timedelta | None) -> Answer:
    """The call never returns; the effect may come all the same, and late."""
    return Answer(takes_effect_after=takes_effect_after, hangs=True)
