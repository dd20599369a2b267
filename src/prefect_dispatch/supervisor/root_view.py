"""What a supervisor may learn from a checkpoint root that it can reach. It reads no save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from prefect_dispatch.errors import MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.pin import Pin
from prefect_dispatch.stores.published import list_publications
from prefect_dispatch.stores.verdict import Judge, Verdict
from prefect_dispatch.supervisor.attempt_view import AttemptView, Progress
from prefect_dispatch.supervisor.final_save import FinalSave, find_final_save
from prefect_dispatch.supervisor.root_look import MOST_NAMES, RootLook
from prefect_dispatch.supervisor.save_times import find_save_times


class RootView:
    """A lineage's root, seen from outside. Every method answers None where the root cannot tell.

    A job may write whatever it likes into its root, and supervisors look after many: so what is read is bounded in size
    and count, and text comes out as one harmless line of a bounded length.

    Args:
        root: the root.
        now: the time; no host's clock is believed to be far ahead of it.
    """

    def __init__(self, root: LineageRoot, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._root = root
        self._look = RootLook(root, now)
        self._progress: dict[str, Progress] = {}

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read so far, each once: a malformed name is never skipped in silence."""
        return self._look.faults

    def publications(self) -> list[Publication] | None:
        """All publications, in order."""
        return self._look.ask(lambda: list_publications(self._root.store, MOST_NAMES))

    def verdict(self, publication: Publication, below: Epoch) -> Verdict | None:
        """Whether a save is whole, and can be of an execution before an epoch."""
        return self._look.ask(lambda: Judge(self._root.store, below).judge(publication))

    def published(self, generation: int) -> int | None:
        """How many publications a generation has."""
        publications = self.publications()
        if publications is None:
            return None
        return sum(1 for publication in publications if publication.epoch.generation == generation)

    def last_word(self, epoch: Epoch, attempt: str) -> LastWord | None:
        """What an execution left behind about its end."""
        return AttemptView(self._look, attempt).last_word(epoch)

    def notes(self, attempt: str) -> tuple[str, ...]:
        """What an execution found worth telling when it started, such as changed code."""
        return AttemptView(self._look, attempt).notes() or ()

    def exited_at(self, attempt: str) -> datetime | None:
        """When an execution's wrapper wrote its last word, by its host's clock."""
        return AttemptView(self._look, attempt).exited_at()

    def progress(self, attempt: str) -> Progress | None:
        """What an execution's program last said of itself."""
        told = AttemptView(self._look, attempt).progress(self._progress.get(attempt))
        if told is not None:
            # Entries stay as they are: each is read once, however often somebody looks.
            self._progress = {attempt: told}
        return told

    def final_save(self, generation: int) -> FinalSave | None:
        """The newest publication of a generation that its execution can have made."""
        own = [each for each in self.publications() or [] if each.epoch.generation == generation]
        return find_final_save(self._look, own, self.pin)

    def why_away(self) -> str:
        """Why the root cannot be asked for its saves now and can be later; empty where it can, or is out of reach."""
        return self._look.why_away(lambda: list_publications(self._root.store, MOST_NAMES))

    def pin(self, attempt: str) -> Pin | None:
        """What an execution has decided to resume from; a pin without a publication is a start from scratch."""
        try:
            split_attempt(attempt)
        except MalformedName:
            return None
        return self._look.ask(lambda: self._root.pinned(attempt))

    def saved_at(self, publications: Sequence[Publication]) -> dict[Publication, datetime]:
        """When the last file of each save was written, by its host's clock, where that is known."""
        return find_save_times(self._look, publications)
