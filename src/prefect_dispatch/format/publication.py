"""The publication: a durable, empty name that makes a save visible to later executions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Tuple

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import check_path, decode_part, encode_part
from prefect_dispatch.format.printable import printable

MAX_STEP = 2**63 - 1

_parse_epoch = lru_cache(maxsize=1024)(Epoch.parse)  # 100,000 names of a root share a few epochs


@dataclass(frozen=True)
class Publication:
    """One name of ``pub/``: ``<epoch, 20 digits>-<step, 20 digits>-<base32 of the save's path>``.

    Args:
        epoch: the execution that published it.
        step: the program's own step, 0 to 2^63-1.
        path: the save, relative to the lineage's root; at most 133 bytes of UTF-8.

    Raises:
        UsageError: a part is out of its range, or the path cannot be named.

    Example:
        >>> Publication(Epoch(0, 1, 0), 40, "exec/k3v7q2m5x4c6b7a2-0/step-40").name[:41]
        '00000000000001000000-00000000000000000040'
    """

    epoch: Epoch
    step: int
    path: str

    def __post_init__(self) -> None:
        check_step(self.step)
        check_path(self.path)

    @classmethod
    def parse(cls, name: str, ledger: str = "pub") -> Publication:
        """Read a name of ``pub/``, or of another ledger whose names are those of publications.

        Raises:
            MalformedName: it is not a publication's name.
        """
        parts = name.split("-")
        try:
            if len(parts) != 3:
                raise MalformedName("it has not three parts with '-' between them")
            if len(parts[1]) != 20 or not parts[1].isascii() or not parts[1].isdigit():
                raise MalformedName(f"step {parts[1]!r} is not written as 20 digits")
            return cls(_parse_epoch(parts[0]), int(parts[1]), decode_part(parts[2]))
        except (MalformedName, UsageError) as error:
            raise MalformedName(
                f"{ledger}/{printable(name)} is not a publication's name: {error}; "
                "find out who wrote it, then move it away"
            ) from None

    @property
    def name(self) -> str:
        """The name in ``pub/``, at most 255 bytes."""
        return f"{self.epoch.digits}-{self.step:020d}-{encode_part(self.path)}"

    @property
    def order(self) -> Tuple[int, int, bytes]:
        """What publications are ordered by: the greatest epoch, then step, then path bytes comes last."""
        return (self.epoch.number, self.step, self.path.encode("utf-8"))


def check_step(step: int) -> int:
    """Return the step if it is one.

    Raises:
        UsageError: it is not a whole number from 0 to 2^63-1.
    """
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise UsageError(f"step {step!r} is out of range; it must be a whole number from 0 to {MAX_STEP}")
    return step
