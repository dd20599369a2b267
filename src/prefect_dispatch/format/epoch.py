"""The epoch: the one number that orders executions and only rises."""

from __future__ import annotations

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.dataclass import dataclass

MAX_GENERATION = 9_223_371
"""The greatest generation whose epochs all fit in 63 bits: 9,223,371·10^12 + 999,999,999,999 < 2^63."""
MAX_SUBMISSION = 999_999
MAX_RESTART = 999_999

_GENERATION_UNIT = 10**12
_SUBMISSION_UNIT = 10**6
MAX_EPOCH = MAX_GENERATION * _GENERATION_UNIT + MAX_SUBMISSION * _SUBMISSION_UNIT + MAX_RESTART
"""The number of the last epoch."""


@dataclass(frozen=True, order=True)
class Epoch:
    """One execution's place in the order of a lineage: generation G, submission N, restart R.

    Args:
        generation: 0 for a new job; one more than the job that it supersedes. At most 9,223,371.
        submission: how many times this job was handed to a scheduler so far, 1 to 999,999.
        restart: how often the scheduler itself restarted that object, 0 to 999,999.

    Raises:
        UsageError: a part is out of its range.

    Example:
        >>> Epoch(2, 3, 1).number
        2000003000001
        >>> str(Epoch.of(2000003000001))
        'g2n3r1'
    """

    generation: int
    submission: int
    restart: int

    def __post_init__(self) -> None:
        _check("generation", self.generation, 0, MAX_GENERATION)
        _check("submission", self.submission, 1, MAX_SUBMISSION)
        _check("restart", self.restart, 0, MAX_RESTART)

    @classmethod
    def of(cls, number: int) -> Epoch:
        """Split an epoch's number into its parts.

        Raises:
            UsageError: no execution can have this number.
        """
        generation, rest = divmod(number, _GENERATION_UNIT)
        submission, restart = divmod(rest, _SUBMISSION_UNIT)
        try:
            return cls(generation, submission, restart)
        except UsageError as error:
            raise UsageError(f"epoch {number} is not one that an execution can have: {error}") from None

    @classmethod
    def parse(cls, digits: str) -> Epoch:
        """Read the 20 digits that names carry.

        Raises:
            MalformedName: not exactly 20 digits, or no epoch.
        """
        if len(digits) != 20 or not digits.isascii() or not digits.isdigit():
            raise MalformedName(f"epoch {digits!r} is not written as 20 digits")
        try:
            return cls.of(int(digits))
        except UsageError as error:
            raise MalformedName(str(error)) from None

    @property
    def number(self) -> int:
        """G·10^12 + N·10^6 + R."""
        return self.generation * _GENERATION_UNIT + self.submission * _SUBMISSION_UNIT + self.restart

    @property
    def digits(self) -> str:
        """The number as names carry it, 20 digits."""
        return f"{self.number:020d}"

    def __str__(self) -> str:
        return f"g{self.generation}n{self.submission}r{self.restart}"


def check_restart(restart: int) -> int:
    """Return the restart if it is one.

    Raises:
        UsageError: it is not a whole number from 0 to 999,999.
    """
    _check("restart", restart, 0, MAX_RESTART)
    return restart


def _check(part: str, value: int, least: int, greatest: int) -> None:
    if type(value) is not int or not least <= value <= greatest:
        raise UsageError(f"{part} {value!r} is out of range; it must be a whole number from {least} to {greatest}")
