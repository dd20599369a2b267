"""What a supervisor may learn from a checkpoint root that it can reach. It reads no save."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.lineage_root import LineageRoot

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinalSave:
    """The save that a generation ended with.

    Attributes:
        publication: its name.
        produced_by: the attempt that published it.
        resumed_from: what that attempt had resumed from; None for a start from scratch.
    """

    publication: str
    produced_by: str
    resumed_from: str | None


class RootView:
    """A lineage's root, seen from outside. Every method answers None where the root cannot tell."""

    def __init__(self, root: LineageRoot) -> None:
        self._root = root

    def publications(self) -> list[Publication] | None:
        """All publications, in order."""
        try:
            return self._root.publications()
        except DispatchError as error:
            _log.warning("%s", error, extra={"action": "root.unreadable"})
            return None

    def published(self, generation: int) -> int | None:
        """How many publications a generation has."""
        publications = self.publications()
        if publications is None:
            return None
        return sum(1 for publication in publications if publication.epoch.generation == generation)

    def last_word(self, epoch: Epoch, attempt: str) -> LastWord | None:
        """What an execution left behind about its end."""
        try:
            claimed = self._root.claim_of(epoch) is not None
            started: bool | None = None
            detail = ""
            for entry in self._root.journal(attempt).entries():
                if entry.kind == "exit":
                    started = entry.fields.get("program_started") is True
                    detail = str(entry.fields.get("reason") or "")
            return LastWord(claimed, started, detail[:500])
        except DispatchError as error:
            _log.warning("%s", error, extra={"action": "root.unreadable"})
            return None

    def final_save(self, generation: int) -> FinalSave | None:
        """The newest publication of a generation, and what the execution behind it had resumed from."""
        publications = self.publications() or []
        own = [publication for publication in publications if publication.epoch.generation == generation]
        if not own:
            return None
        newest = own[-1]
        attempt = newest.path.split("/")[1] if "/" in newest.path else ""
        return FinalSave(newest.name, attempt, self.resumed_from(attempt))

    def resumed_from(self, attempt: str) -> str | None:
        """The publication that an execution resumed from."""
        try:
            pin = self._root.pin_of(attempt)
        except DispatchError as error:
            _log.warning("%s", error, extra={"action": "root.unreadable"})
            return None
        return pin.publication.name if pin is not None and pin.publication is not None else None
