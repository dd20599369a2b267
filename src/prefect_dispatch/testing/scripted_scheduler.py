"""The in-memory scheduler in a shape in which nothing happens by itself: the test starts and ends every object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.scheduler_shape import Shape

SCRIPTED = Capabilities(
    scheduler="scripted",
    requeue=True,
    time_limit=True,
    landing_bound=timedelta(seconds=60),
    restart_bound=timedelta(minutes=5),
    observe_bound=timedelta(seconds=60),
)


class ScriptedScheduler(MemoryScheduler):
    """Objects stay queued until ``start`` and run until ``end``; none is forgotten until ``purge``.

    Args:
        clock: what time it is, aware.
        capabilities: what it can do.
        linger: how long processes live on after an end with ``lingers``.
        slow_stops: whether a stopped object is only ``ending`` until the test ends it.

    Example:
        >>> scheduler = ScriptedScheduler(lambda: now)
        >>> scheduler.script_submit(times_out(takes_effect_after=timedelta(seconds=30)))
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        capabilities: Capabilities = SCRIPTED,
        *,
        linger: timedelta = timedelta(0),
        slow_stops: bool = False,
    ) -> None:
        shape = Shape(
            capabilities=capabilities,
            ending_for=None if slow_stops else timedelta(0),
            linger=linger,
            keeps_time_limits=False,
        )
        super().__init__(clock, shape)
