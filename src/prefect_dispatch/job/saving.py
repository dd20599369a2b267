"""Saving: publishes the saves of one execution from the one source that it has."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from prefect_dispatch.errors import DispatchError, Unpublishable, UsageError
from prefect_dispatch.format.manifest import Manifest
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.saves import SaveKind
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.job.watch import Found, watch_for
from prefect_dispatch.stores.layout import exec_folder, manifests_folder, snapshots_folder

if TYPE_CHECKING:
    from prefect_dispatch.format.messages import CheckpointSave

_STATE_FILE = "state"


class Saving:
    """Publishes what one execution saves.

    Args:
        execution: which one.
        clock: monotonic seconds.

    Attributes:
        looking_since: when the look at the folder began that is under way, by the clock; None between looks.
    """

    def __init__(self, execution: Execution, clock: Callable[[], float] = time.monotonic) -> None:
        self._execution = execution
        self._clock = clock
        self._watch = watch_for(execution.saves, clock)
        self._steps: Dict[str, int] = {}
        self._last: Optional[int] = None
        self.looking_since: Optional[float] = None

    @property
    def watches(self) -> bool:
        """Whether saves have to be looked for."""
        return self._watch is not None

    def scan(self, ended_well: bool = False) -> List[Publication]:
        """Look for whole saves once and publish them.

        Args:
            ended_well: the program ended by its own will and nothing of it is left.

        Raises:
            Unpublishable: a save is whole and cannot be published.
            StoreError: the store failed.
            OSError: the execution's folder cannot be read.
        """
        if self._watch is None:
            return []
        self.looking_since = self._clock()
        try:
            found = self._watch.look(self._execution.folder, ended_well)
        finally:
            self.looking_since = None
        publications = (self._publish_found(save) for save in found)
        return [publication for publication in publications if publication is not None]

    def publish_said(self, save: CheckpointSave) -> Publication:
        """Publish a save that the program has announced by a message. Its step is its number.

        A save with a file is copied first, since the program is free to overwrite the file. A save without one is its
        state alone; it is kept as a small file named ``state`` where snapshots lie.

        Raises:
            UsageError: this execution's saves come from elsewhere.
            Unpublishable: the file is not there or not inside the execution's folder.
            StoreError: the store failed.
        """
        execution = self._execution
        if execution.saves.kind is not SaveKind.MESSAGES:
            raise UsageError(
                f"a save by message is refused: saves.kind is {execution.saves.kind.value!r}, and an execution has one "
                "source of saves; set it to 'messages' or take the message out"
            )
        step = self._next_number()
        if save.file is None:
            folder = f"{snapshots_folder(execution.attempt)}/{step}"
            execution.root.store.ledger(folder).create(_STATE_FILE, save.state.encode("utf-8"))
            return self._publish(f"{folder}/{_STATE_FILE}", step, save.state)
        return self._publish(self._inside(save.file), step, save.state, snapshot=True)

    def publish_explicitly(self, path: str, step: int, state: str) -> Publication:
        """Publish a save that the program names.

        Raises:
            UsageError: this execution's saves come from elsewhere, or the step cannot be one.
            Unpublishable: the save cannot be published.
            StoreError: the store failed.
        """
        kind = self._execution.saves.kind
        if kind is not SaveKind.EXPLICIT:
            raise UsageError(
                f"publishing {path!r} is refused: saves.kind is {kind.value!r}, and an execution has one source of "
                "saves; set it to 'explicit' or leave publishing to it"
            )
        inside = self._inside(path)
        return self._publish(inside, step, state, snapshot=self._may_be_overwritten(inside, step))

    def _publish_found(self, found: Found) -> Optional[Publication]:
        """Publish one; None if the program changed or removed it meanwhile, which its next look will show."""
        watch, folder = self._watch, self._execution.folder
        assert watch is not None
        path = f"{exec_folder(self._execution.attempt)}/{found.path}"
        known = None if path in self._steps else self._published_already(path)
        if known is not None and found.step in (None, known):
            # Another process of this execution watches too, and was faster.
            self._steps[path] = known
            watch.published(found)
            return None
        step = self._next_number() if found.step is None else found.step
        try:
            publication = self._publish(
                path,
                step,
                snapshot=self._may_be_overwritten(path, step),
                still_whole=lambda: watch.still_whole(folder, found),
            )
        except DispatchError:
            if watch.still_whole(folder, found):
                raise
            return None
        self._steps[path] = step
        watch.published(found)
        return publication

    def _may_be_overwritten(self, path: str, step: int) -> bool:
        """Whether the program may write over this save, so that it is published as a copy.

        One file is written over again and again under one name, and nothing tells a torn one from a whole one of the
        same size. A folder is taken for one save, unless it was published before as another: who writes into it again
        takes its marker out first, and so its manifest does not hold. Nothing protects what merely settles.
        """
        if self._execution.saves.kind is SaveKind.SETTLE or not os.path.isdir(self._execution.root.absolute(path)):
            return True
        return self._step_of(path) not in (None, step)

    def _inside(self, path: str) -> str:
        inside = self._execution.inside(path)
        if inside is None:
            raise Unpublishable(
                f"save {path!r} is not inside the execution's own folder {self._execution.folder!r}; "
                "write it below DISPATCH_EXEC_DIR"
            )
        return f"{exec_folder(self._execution.attempt)}/{inside}"

    def _publish(
        self,
        path: str,
        step: int,
        state: str = "",
        snapshot: bool = False,
        still_whole: Optional[Callable[[], bool]] = None,
    ) -> Publication:
        execution = self._execution
        return execution.root.publish(
            execution.epoch, execution.attempt, path, step, state, execution.identity, snapshot, still_whole
        )

    def _next_number(self) -> int:
        """One more than the greatest step that this execution has published or was asked to publish here."""
        if self._last is None:
            self._last = max((publication.step for publication in self._own_publications()), default=0)
        self._last += 1
        return self._last

    def _step_of(self, path: str) -> Optional[int]:
        """The step under which this execution published a path, by whichever of its processes; None if none did."""
        if path in self._steps:
            return self._steps[path]
        steps = [publication.step for publication in self._own_publications() if publication.path == path]
        return max(steps, default=None)

    def _published_already(self, path: str) -> Optional[int]:
        """The step under which this execution published just these files, in place or as a copy; None if it did not."""
        root, attempt = self._execution.root, self._execution.attempt
        snapshots, name = f"{snapshots_folder(attempt)}/", path.rpartition("/")[2]
        candidates = [
            publication
            for publication in self._own_publications()
            if publication.path == path
            or (publication.path.startswith(snapshots) and publication.path.rpartition("/")[2] == name)
        ]
        if not candidates:
            return None
        files = root.store.files(path)
        ledger = root.store.ledger(manifests_folder(attempt))
        for manifest_name in ledger.names():
            manifest = Manifest.decode(ledger.read(manifest_name), manifest_name)
            if manifest.publication in candidates and manifest.files == files:
                return manifest.publication.step
        return None

    def _own_publications(self) -> List[Publication]:
        execution = self._execution
        return [publication for publication in execution.root.publications() if publication.epoch == execution.epoch]
