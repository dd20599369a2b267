"""Finishing: the last fact of a generation, with the save that it ended with."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from prefect_dispatch.model.facts import Finished
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.model.steps import Finish
from prefect_dispatch.supervisor.access import Access

ROOT_BOUND = timedelta(minutes=10)
"""How long a root that is away at the very end is waited for: what is written then is written for good."""


class RootAway(Exception):
    """The root cannot be asked for the final save now; the text says why."""


class Finisher:
    """Appends the end of a generation.

    Args:
        access: the lineage. The root is waited for in this process's own time.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def finish(self, state: LineageState, step: Finish) -> None:
        """Append the end, with the final save where there is one.

        Raises:
            RootAway: the root is away, and was not for long; nothing was appended.
        """
        root, untold = self._access.root, ""
        final = None
        if root is not None:
            # In this order: what was away is looked at again as long as it is, and a look at what is there counts.
            away = await asyncio.to_thread(root.why_away)
            since = self._access.time.seen(("finish", state.generation)) if away else None
            if since is not None and self._access.time.now() - since < ROOT_BOUND:
                raise RootAway(f"the final save cannot be told yet: {away}")
            untold = f"; its final save could not be told: {away}" if away else ""
            final = await asyncio.to_thread(root.final_save, state.generation)
        await self._access.append(
            Finished(
                outcome=step.outcome,
                detail=f"{step.detail}{untold}",
                final_save=final.publication if final else None,
                produced_by=final.produced_by if final else None,
                resumed_from=final.resumed_from if final else None,
            )
        )
