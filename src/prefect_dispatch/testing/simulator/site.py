"""The site: it knows which processes live, and says so truly, late, or not at all."""

from __future__ import annotations

import asyncio

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.testing.simulator.stage import Stage
from prefect_dispatch.testing.simulator.truth import Truth

TAKES = (0.0, 0.0, 1.0, 10.0, 40.0)
"""Seconds that it takes to answer; the last one is longer than anybody waits."""


class Site:
    """One poller's way to the site; see :class:`~prefect_dispatch.schedulers.cessation.CessationSignal`.

    Args:
        stage: whose turn it is, and what goes wrong.
        truth: what really lives.
    """

    def __init__(self, stage: Stage, truth: Truth) -> None:
        self._stage = stage
        self._truth = truth

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """See the port."""
        stage = self._stage
        await asyncio.sleep(stage.random.choice(TAKES))
        stage.pause()
        mood = stage.random.random()
        if mood < 0.1:
            stage.happen("signal error")
            raise SchedulerError("the site does not answer")
        if mood < 0.3:
            answer = CessationAnswer("unknown", "the node is cut off")
        elif ended.attempt in self._truth.scheduler.living():
            answer = CessationAnswer("running")
        else:
            # From here on it is true for good.
            self._truth.gone.add(ended.attempt)
            answer = CessationAnswer("ceased")
        stage.happen(f"signal {answer.answer}")
        stage.note(f"the site says of {ended.attempt}: {answer.answer}")
        await asyncio.sleep(stage.random.choice(TAKES))
        return answer
