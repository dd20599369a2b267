"""Chance for actors: while a simulation runs, their tokens and nonces come from its seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from prefect_dispatch.format import names
from prefect_dispatch.supervisor import record
from prefect_dispatch.testing.simulator.kernel import Kernel


@contextmanager
def seeded(kernel: Kernel, random: Random, snapshot_every: int) -> Iterator[None]:
    """Give the actors of one simulation their tokens and nonces, keep logs quiet, and take snapshots more often.

    Threads that are no actors get the system's chance all the while.

    Args:
        kernel: knows who its actors are.
        random: where tokens and nonces come from.
        snapshot_every: facts between two snapshots of the fold.
    """
    real_bytes, real_every = names.random_bytes, record.SNAPSHOT_EVERY

    def random_bytes(count: int) -> bytes:
        return random.randbytes(count) if kernel.runs_here() else real_bytes(count)

    logger = logging.getLogger("prefect_dispatch")
    level = logger.level
    names.random_bytes = random_bytes
    record.SNAPSHOT_EVERY = snapshot_every
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        names.random_bytes = real_bytes
        record.SNAPSHOT_EVERY = real_every
        logger.setLevel(level)
