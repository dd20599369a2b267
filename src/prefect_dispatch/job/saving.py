"""Saving: publishes the saves of one execution from the one source that it has."""

from __future__ import annotations

import time
from contextlib import suppress

from prefect_dispatch.errors import Absent, Barred, DispatchError, Unpublishable, UsageError
from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.format.manifest import Manifest
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.saves import SaveKind
from prefect_dispatch.job.data_set import DataSet, Said
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.job.fingerprint import has_other_names
from prefect_dispatch.job.turn import take_turn
from prefect_dispatch.job.watch import Found, watch_for
from prefect_dispatch.stores.layout import PUBLICATIONS, exec_folder, manifests_folder
from prefect_dispatch.stores.verdict import read_barred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Set

    from prefect_dispatch.format.messages import CheckpointFiles, CheckpointSave

_PATIENCE = 60.0
"""Seconds for which another process may hold up this one's publishing; a stopped one would do so forever."""
_LAST_PATIENCE = 10.0
"""Seconds that the last look waits for another process; the program's own are dead by then."""


class Saving:
    """Publishes what one execution saves.

    Args:
        execution: which one.
        clock: monotonic seconds.
        say: adds a line to the log.
        now: what stamps the journal's entries, in seconds since 1970.

    Attributes:
        looking_since: when the look at the folder began that is under way, by the clock; None between looks.
    """

    def __init__(
        self,
        execution: Execution,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda line: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._execution = execution
        self._clock = clock
        self._watch = watch_for(execution.saves, clock)
        self._say = say
        self._now = now
        self._data_set = DataSet(execution)
        self._manifests: Dict[str, Manifest] = {}
        self._named: Set[str] = set()
        self._skipped: Set[str] = set()
        self._barred: Set[str] = set()
        self._held_up_since: Optional[float] = None
        self.looking_since: Optional[float] = None

    @property
    def marker(self) -> str:
        """What the names of marker files beside saves end with; empty where the source of saves has none."""
        return self._execution.saves.marker if self._execution.saves.kind is SaveKind.MARKER else ""

    @property
    def watches(self) -> bool:
        """Whether saves have to be looked for."""
        return self._watch is not None

    def scan(self, ended_well: bool = False, last: bool = False) -> List[Publication]:
        """Look for whole saves once and publish them.

        While another process of this execution publishes, what was found is left for the next look, which will show
        whether the other one has published it or died before. Who holds up the others for too long is not waited for.

        Args:
            ended_well: the program ended by its own will and nothing of it is left.
            last: there is no next look, so the other process is waited for.

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
        publications = self._publish_all(found, last)
        if ended_well:
            self._watch.check_nothing_left()
        return [publication for publication in publications if publication is not None]

    def _publish_all(self, found: List[Found], last: bool) -> List[Optional[Publication]]:
        if not found:
            return []
        with take_turn(self._execution.folder, _LAST_PATIENCE if last else 0.0) as mine:
            if mine or last:
                self._held_up_since = None
            elif self._held_up_since is None:
                self._held_up_since = self._clock()
            if self._held_up_since is not None and self._clock() - self._held_up_since < _PATIENCE:
                return []
            return [self._publish_found(save) for save in found]

    def declare(self, message: CheckpointFiles) -> None:
        """Have files and folders belong to every save by message from now on.

        Raises:
            UsageError: this execution's saves come from elsewhere.
            Unpublishable: one of them can be no part of a save; nothing is declared.
        """
        self._require_messages("a data set")
        self._data_set.declare(message)

    def look_at_said(self, save: CheckpointSave) -> Said:
        """What a message makes a save of, and what that looks like now, as far as it can be seen."""
        inside = None if save.file is None else self._execution.inside(save.file)
        names = self._data_set.names
        if inside is not None and inside not in names:
            names = (*names, inside)
        return Said(save, names, self._data_set.fingerprint(names))

    def publish_said(self, said: Said) -> Publication:
        """Publish a save that the program has announced by a message. Its step is its number.

        What it is made of is copied, since the program is free to write there again once it is published: its file
        alone; or, where it has declared a data set, that and the file, each as it lies in the execution's folder.
        Without either the save is its state alone.

        Args:
            said: what :meth:`look_at_said` returned when the message came. Files that are others by now are not those
                that the program called whole.

        Raises:
            UsageError: this execution's saves come from elsewhere.
            Unpublishable: a file is not there, not inside the execution's folder, or has changed since its message.
            StoreError: the store failed.
        """
        self._require_messages("a save by message")
        execution, save = self._execution, said.save
        if save.file is None and not said.names:
            return execution.root.publish_state(execution.epoch, execution.attempt, save.state, execution.identity)
        path = exec_folder(execution.attempt) if save.file is None else self._inside(save.file)

        def check_unchanged() -> bool:
            if self._data_set.fingerprint(said.names) != said.seen:
                raise Unpublishable(
                    f"save {path!r} has changed since its message; leave a save as it is until its publication is "
                    "told, or write each to a file of its own"
                )
            return True

        check_unchanged()
        own = f"{exec_folder(execution.attempt)}/"
        if [f"{own}{name}" for name in said.names] == [path]:
            return self._publish(path, None, save.state, snapshot=True, still_whole=check_unchanged)
        paths = [f"{own}{name}" for name in said.names]
        return execution.root.publish_set(
            execution.epoch, execution.attempt, paths, save.state, execution.identity, check_unchanged
        )

    def _require_messages(self, what: str) -> None:
        kind = self._execution.saves.kind
        if kind is not SaveKind.MESSAGES:
            raise UsageError(
                f"{what} is refused: saves.kind is {kind.value!r}, and an execution has one "
                "source of saves; set it to 'messages' or take the message out"
            )

    def publish_explicitly(self, path: str, step: int, state: str) -> Publication:
        """Publish a save that the program names: a copy, unless it has promised never to write into a save again.

        Raises:
            UsageError: this execution's saves come from elsewhere, or the step cannot be one.
            Unpublishable: the save cannot be published.
            StoreError: the store failed.
        """
        saves = self._execution.saves
        kind = saves.kind
        if kind is not SaveKind.EXPLICIT:
            raise UsageError(
                f"publishing {path!r} is refused: saves.kind is {kind.value!r}, and an execution has one source of "
                "saves; set it to 'explicit' or leave publishing to it"
            )
        inside = self._inside(path)
        return self._publish(inside, step, state, snapshot=saves.overwritten or self._has_other_names(inside))

    def _publish_found(self, found: Found) -> Optional[Publication]:
        """Publish one; None where there is nothing to publish.

        So it is where another process of this execution was faster, where the program changed or removed the save
        meanwhile, which the next look will show, and where what has merely settled is no save.
        """
        watch, folder = self._watch, self._execution.folder
        assert watch is not None
        path = f"{exec_folder(self._execution.attempt)}/{found.path}"
        if self._published_already(path, found.step):
            watch.done_with(found)
            return None
        try:
            publication = self._publish(
                path,
                found.step,
                snapshot=self._may_be_overwritten(path, found),
                # Asked after the save has its number: two processes that found it then agree on the lesser one.
                still_whole=lambda: watch.still_whole(folder, found) and not self._published_already(path, found.step),
            )
        except DispatchError as error:
            if isinstance(error, Barred):
                self._barred.add(path)
            if not watch.still_whole(folder, found):
                self._say(f"save {printable(found.path)} is passed over: {printable(str(error))}")
                return None
            if not self._published_already(path, found.step):
                if self._execution.saves.kind is not SaveKind.SETTLE or not _is_fault_of_the_save(error):
                    raise
                self._skip(found, error)
            watch.done_with(found)
            return None
        watch.done_with(found)
        return publication

    def _may_be_overwritten(self, path: str, found: Found) -> bool:
        """Whether the program may write over this save, so that it is published as a copy.

        Only a folder that holds its own marker is published where it lies: who writes into it again takes the marker
        out first, and a manifest whose marker is gone does not hold. Nothing else tells a torn save from a whole one of
        the same sizes. Nor is a folder published in place as a second step: its name is the first one's; nor one with
        hard links in it: who writes by the other names knows of no marker.
        """
        return (
            not found.marked_inside
            or self._has_other_names(path)
            or any(
                manifest.publication.path == path and manifest.publication.step != found.step
                for manifest in self.published()
            )
        )

    def _has_other_names(self, path: str) -> bool:
        try:
            return has_other_names(self._execution.root.absolute(path))
        except OSError:
            return True  # Publishing says better than we could what is wrong with it.

    def _skip(self, found: Found, error: DispatchError) -> None:
        """Report once what matches the pattern and can be no save."""
        if found.path in self._skipped:
            return
        execution, line = self._execution, f"save {printable(found.path)}"
        reason = f"{printable(str(error))}; it is left out: narrow saves.pattern"
        self._say(f"{line} is refused: {reason}")
        journal = execution.root.journal(execution.attempt)
        journal.append(JournalKind.REFUSED.value, at=self._now(), line=line, reason=reason)
        self._skipped.add(found.path)

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
        step: Optional[int],
        state: str = "",
        snapshot: bool = False,
        still_whole: Optional[Callable[[], bool]] = None,
    ) -> Publication:
        execution = self._execution
        return execution.root.publish(
            execution.epoch, execution.attempt, path, step, state, execution.identity, snapshot, still_whole
        )

    def _published_already(self, source: str, step: Optional[int]) -> bool:
        """Whether this execution has published just these files of this source, by whichever of its processes.

        A name that a failed fsync left behind is no publication, also where the disk refused to note that.

        Args:
            source: where the program wrote the save.
            step: the step that it must have been published as; None for any.
        """
        candidates = [
            manifest
            for manifest in self.published()
            if manifest.source == source and step in (None, manifest.publication.step) and source not in self._barred
        ]
        if not candidates:
            return False
        try:
            files = self._execution.root.store.files(source)
        except (Absent, Unpublishable):
            return False
        return any(tuple(file.as_listed for file in manifest.files) == files for manifest in candidates)

    def published(self) -> List[Manifest]:
        """The manifests of this execution whose publication is there and counts. What was read is not read again."""
        store, attempt = self._execution.root.store, self._execution.attempt
        ledger, publications = store.ledger(manifests_folder(attempt)), store.ledger(PUBLICATIONS)
        for name in ledger.names():
            if name not in self._manifests:
                self._manifests[name] = Manifest.decode(ledger.read(name), f"{manifests_folder(attempt)}/{name}")
        for name, manifest in self._manifests.items():
            if name not in self._named:
                with suppress(Absent):
                    publications.read(manifest.publication.name)
                    self._named.add(name)
        barred = read_barred(store, attempt)
        named = [self._manifests[name] for name in self._named]
        return [manifest for manifest in named if manifest.publication.path not in barred]


def _is_fault_of_the_save(error: DispatchError) -> bool:
    return isinstance(error, Unpublishable) and not isinstance(error, Barred)
