"""What ends a run or task that is refused: one sentence for people, in its log and in its state, and no traceback."""

from __future__ import annotations

from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Failed

from prefect_dispatch.errors import DispatchError, LineageError, UsageError
from prefect_dispatch.tasks.end_state import EndState


def refused(error: DispatchError) -> State[Any]:
    """The state in which a run or task ends for one of our errors, whose text says what is wrong and what to do.

    Prefect would put a traceback of our own code around it, though nothing in that went wrong. Whoever calls the flow
    or task as a function gets the error itself. The traceback is in the log where that is at its most detailed.
    """
    logger = get_run_logger()
    logger.error("%s", error, extra={"action": "run.refused"})
    logger.debug("the error came from here", exc_info=error)
    name = EndState.REFUSED if isinstance(error, LineageError | UsageError) else None
    return Failed(name=name, message=str(error), data=error)
