"""The resume choice: which publications an execution may resume from."""

from __future__ import annotations

from prefect_dispatch.errors import MalformedDocument, MalformedName
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import MAX_EPOCH, Epoch
from prefect_dispatch.format.publication import Publication

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, Union

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

    def candidates(
        self, listed: Iterable[Publication], is_forged: Callable[[Publication], bool] = lambda _: False
    ) -> Iterator[Publication]:
        """The publications that may be resumed from, the one to try first at the front; taken from the list one by one.

        None at all means: start from scratch. A base that is a publication is offered whether it is listed or not, so
        that its absence shows as an unusable save, never as a start from scratch.

        Args:
            listed: all publications, the greatest first.
            is_forged: whether one that was offered has turned out to be forged; asked before the next one is offered.
                Where the floor's publications begin must not depend on a forged name.
        """
        has_floor = False
        for publication in listed:
            is_below = publication.epoch.number < self.floor
            if is_below and (has_floor or self.base != LATEST):
                break
            yield publication
            if not is_below and not is_forged(publication):
                has_floor = True
        if isinstance(self.base, Publication) and not has_floor:
            yield self.base

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
