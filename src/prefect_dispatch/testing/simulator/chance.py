"""Chance for actors: while a simulation runs, what they take from ``secrets`` comes from its seed."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from prefect_dispatch.supervisor import record
from prefect_dispatch.testing.simulator.kernel import Kernel


@contextmanager
def seeded(kernel: Kernel, random: Random, snapshot_every: int) -> Iterator[None]:
    """Give the actors of one simulation their tokens and nonces, keep logs quiet, and take snapshots more often.

    Threads that are no actors get real secrets all the while.

    Args:
        kernel: knows who its actors are.
        random: where tokens and nonces come from.
        snapshot_every: facts between two snapshots of the fold.
    """
    real_bytes, real_hex, real_every = secrets.token_bytes, secrets.token_hex, record.SNAPSHOT_EVERY

    def token_bytes(nbytes: int | None = None) -> bytes:
        return random.randbytes(nbytes or 32) if kernel.runs_here() else real_bytes(nbytes)

    def token_hex(nbytes: int | None = None) -> str:
        return token_bytes(nbytes).hex()

    logger = logging.getLogger("prefect_dispatch")
    level = logger.level
    secrets.token_bytes, secrets.token_hex = token_bytes, token_hex
    record.SNAPSHOT_EVERY = snapshot_every
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        secrets.token_bytes, secrets.token_hex = real_bytes, real_hex
        record.SNAPSHOT_EVERY = real_every
        logger.setLevel(level)
