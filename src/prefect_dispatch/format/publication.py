"""The publication: a durable, empty name that makes a save visible to later executions."""

from __future__ import annotations

from functools import lru_cache

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import check_path, decode_part, encode_part
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence, Tuple

MAX_STEP = 2**63 - 1
RANK_LENGTH = 2 * 20 + 2
"""How long the beginning of a name is that holds epoch and step; where two differ there, their text orders them."""

_parse_epoch = lru_cache(maxsize=1024)(Epoch.parse)  # 100,000 names of a root share a few epochs
_FORMS = pattern(r"(?:0[0-8][0-9]{6}(?!0{6})[0-9]{12}-0[0-8][0-9]{18}-[A-Z2-7]+/)*")
"""Names with '/' behind each. The greatest epoch and the greatest step both begin with 09: what does is looked at."""


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


def check_forms(names: Sequence[str], ledger: str = "pub") -> None:
    """Refuse names that have not the form of a publication's: an epoch, a step, and base32.

    After this every name has its place in the order, and none that was not understood can be the greatest. What path
    the base32 spells is left to :meth:`Publication.parse`, which takes many times as long.

    Raises:
        MalformedName: one is not; the text names it.
    """
    # No file's name holds the '/' that parts them here: one match takes half the time of one for each of 100,000.
    if names and _FORMS.fullmatch("/".join([*names, ""])) is None:
        for name in names:
            Publication.parse(name, ledger)


def check_step(step: int) -> int:
    """Return the step if it is one.

    Raises:
        UsageError: it is not a whole number from 0 to 2^63-1.
    """
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise UsageError(f"step {step!r} is out of range; it must be a whole number from 0 to {MAX_STEP}")
    return step
