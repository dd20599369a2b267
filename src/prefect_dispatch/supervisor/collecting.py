"""Collecting the troubles of calls that are each made by itself, so that none keeps the others from being made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from prefect_dispatch.errors import SchedulerError


@contextlib.contextmanager
def collected(troubles: list[SchedulerError]) -> Iterator[None]:
    """Note a trouble with the scheduler, and go on."""
    try:
        yield
    except SchedulerError as error:
        troubles.append(error)


def raise_all(troubles: Sequence[SchedulerError]) -> None:
    """Raise what was collected as one error that tells each reason once; nothing where there was none."""
    if troubles:
        raise SchedulerError("; ".join(dict.fromkeys(str(trouble) for trouble in troubles)))
