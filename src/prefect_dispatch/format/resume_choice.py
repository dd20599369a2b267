"""The resume choice: which publications an execution may resume from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Union

from prefect_dispatch.errors import MalformedDocument, MalformedName
from prefect_dispatch.format.epoch import MAX_EPOCH, Epoch
from prefect_dispatch.format.publication import Publication

LATEST = "latest"
SCRATCH = "scratch"


@dataclass(frozen=True)
class ResumeChoice:
    """Base and floor, as they travel with each submission.

    Publications of the floor's epoch or later win; until there is one, exactly the base holds. So "from scratch" and
    "from that one" survive a crash before the first new save, and an old run's late save cannot undo them.

    Args:
        base: ``latest``, ``scratch`` or the one publication to go on from.
        floor: an epoch's number; 0 when every publication may be taken.
    """

    base: Union[str, Publication] = LATEST
    floor: int = 0

    def candidates(self, publications: Iterable[Publication]) -> List[Publication]:
        """The publications that may be resumed from, the one to try first at the front.

        An empty list means: start from scratch. A base that is a publication is offered whether it is still listed or
        not, so that its absence shows as an unusable save, never as a start from scratch.
        """
        listed = sorted(publications, key=lambda publication: publication.order, reverse=True)
        above = [publication for publication in listed if publication.epoch.number >= self.floor]
        if isinstance(self.base, Publication):
            return above or [self.base]
        if self.base == SCRATCH:
            return above
        return above or listed

    def admits(self, epoch: Epoch) -> bool:
        """Whether a part that an execution of this epoch has finished counts as finished.

        It does at or above the floor, or not above the base publication's epoch. So a start from scratch begins all
        parts anew, and one from a publication keeps those of the executions up to that one's.
        """
        if epoch.number >= self.floor:
            return True
        return isinstance(self.base, Publication) and epoch <= self.base.epoch

    def encode(self) -> "dict[str, Union[str, int]]":
        """Write it as documents carry it."""
        base = self.base.name if isinstance(self.base, Publication) else self.base
        return {"base": base, "floor": self.floor}

    @classmethod
    def decode(cls, base: str, floor: int, what: str) -> ResumeChoice:
        """Read what documents carry.

        Raises:
            MalformedDocument: the base is neither a word nor a publication's name, or the floor is negative.
        """
        if floor < 0:
            raise MalformedDocument(f"{what} has floor {floor}, which is negative")
        if floor > MAX_EPOCH:
            raise MalformedDocument(f"{what} has floor {floor}, which is above every epoch")
        if base in (LATEST, SCRATCH):
            return cls(base, floor)
        try:
            return cls(Publication.parse(base), floor)
        except MalformedName as error:
            raise MalformedDocument(f"{what} has base {base!r}: {error}") from None
