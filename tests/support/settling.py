"""A supervisor that advances until there is nothing to do but wait."""

from __future__ import annotations

from prefect_dispatch.supervisor.advance import Advanced, Supervisor

MOST = 100


async def settle(supervisor: Supervisor) -> Advanced:
    """Advance until nothing moves; returns what the last one came to.

    Raises:
        AssertionError: it still moves after a hundred.
    """
    for _ in range(MOST):
        advanced = await supervisor.advance()
        if not advanced.moved:
            return advanced
    raise AssertionError("the lineage never comes to rest")
