"""What one look of a poller came to: in its log, in the state that its run ends in, and at the stores themselves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from prefect_dispatch.supervisor.polls import note_poll


@dataclass
class PollReport:
    """Filled while a poller looks.

    Attributes:
        roots: the record roots that were looked at.
        told: what was done.
        troubles: what could not be; while there are any, no store is noted as looked after.
        beyond: what could not be looked at and concerns nobody for certain, as a store that only a run names.
    """

    roots: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)

    async def end(self, poller: str, looked_at: str, at: datetime) -> State[Any]:
        """Tell it, and note it for ``status``.

        Args:
            poller: whose look it was.
            looked_at: at how much of what, as in ``3 holds``.
            at: the time.

        Returns:
            Completed with what was done, or Failed with what could not be; the rest was done all the same.
        """
        logger = get_run_logger()
        for text in self.beyond:
            logger.warning("not looked after: %s", text, extra={"action": "store.beyond"})
        for text in self.told:
            logger.info("%s", text, extra={"action": f"{poller}.settled"})
        if not self.troubles:
            for root in self.roots:
                await asyncio.to_thread(note_poll, root, poller, at)
        summary = f"{looked_at} in {len(self.roots)} stores{''.join(f'; {text}' for text in self.told)}"
        if self.beyond:
            summary = f"{summary}; not looked after: {'; '.join(self.beyond)}"
        if self.troubles:
            return Failed(message=f"{summary}; not done: {'; '.join(self.troubles)}")
        return Completed(message=summary)
