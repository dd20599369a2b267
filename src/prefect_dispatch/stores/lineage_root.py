"""The lineage's root: claim, start, pin, publish, latest, list, check. Everything the helper does with saves."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, DuplicateExecution, Exists, RootAbsent, UnknownFormat
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.claim import Claim, make_claim
from prefect_dispatch.stores.documents import create_once
from prefect_dispatch.stores.journal import Journal
from prefect_dispatch.stores.layout import (
    FORMAT_DOCUMENT,
    HOMES,
    STANDING,
    STARTED_DOCUMENT,
    exec_folder,
    journal_folder,
    meta_folder,
)
from prefect_dispatch.stores.pin import Pin, make_pin, read_pin
from prefect_dispatch.stores.published import list_publications
from prefect_dispatch.stores.resume import Resume, choose
from prefect_dispatch.stores.root_format import read_root_format, require_root
from prefect_dispatch.stores.started import Started, read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Mapping, Optional, Sequence

    from prefect_dispatch.format.completion import Completion
    from prefect_dispatch.stores.check import Fault
    from prefect_dispatch.stores.completions import Completions, FinishedPart
    from prefect_dispatch.stores.port import Store


class LineageRoot:
    """One lineage's checkpoint root. Holds nothing but the store: every call reads what is there.

    What a job's start does not need, such as publishing, is imported by the method that does it: a wrapper starts on
    every node.

    Every method may raise :class:`~prefect_dispatch.errors.StoreError` where the store fails, and
    :class:`~prefect_dispatch.errors.UnknownFormat` where a document was written by a newer version.

    Args:
        store: a store at ``<root>/<lineage>``.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def location(self) -> str:
        """The root as people and other processes write it."""
        return self.store.location

    def absolute(self, path: str) -> str:
        """A path of this root as a program of this machine finds it."""
        return self.store.local(path)

    def prepare(self, record: str, lineage: str = "") -> None:
        """Make the root ready for a claim: probe the store, and bind the root to its record and lineage. Idempotent.

        Args:
            record: the record's id; empty for a run by hand, which takes any root.
            lineage: the lineage's name; empty where it is not known.

        Raises:
            StoreUnreachable: the store cannot be written, or does not keep exclusive creation.
            MalformedDocument: ``format.json`` is not a document.
            UnknownFormat: the root is of a newer format, or belongs to another record or lineage.
        """
        self.store.probe()
        try:
            read_root_format(self.store)
        except Absent:
            # Before the document: from then on a ledger of these that is not there is away, and not empty.
            for folder in (*STANDING, *HOMES):
                self.store.make_folder(folder)
            reach("bind-root")
            try:
                create_once(self.store.ledger(""), FORMAT_DOCUMENT, {"record": record, "lineage": lineage})
            except Exists:
                pass
            else:
                return
        self._check_bound_to(record, lineage)

    def enter(self, record: str, lineage: str = "") -> None:
        """Make ready for a claim in a root that was prepared before. Makes nothing: if it is not there, it is away.

        Args:
            record: the record's id; empty for a run by hand.
            lineage: the lineage's name; empty where it is not known.

        Raises:
            StoreUnreachable: it is not there, cannot be written, or does not keep exclusive creation.
            MalformedDocument: ``format.json`` is not a document.
            UnknownFormat: the root is of a newer format, or belongs to another record or lineage.
        """
        self.require()
        self.store.probe(make=False)
        self._check_bound_to(record, lineage)

    def require(self) -> None:
        """Make sure that this is a lineage's root of a known format; changes nothing.

        Raises:
            StoreUnreachable: it is not there, or no lineage's root.
            MalformedDocument: ``format.json`` is not a document.
            UnknownFormat: it is of a newer format.
        """
        require_root(self.store)

    def record(self) -> str:
        """The id of the record that this root belongs to; empty for one that belongs to none, or is not there.

        Raises:
            MalformedDocument: ``format.json`` is not a document.
            UnknownFormat: it is of a newer format.
        """
        try:
            return field(read_root_format(self.store), "record", str, f"{self.location}/{FORMAT_DOCUMENT}")
        except (Absent, RootAbsent):
            return ""

    def claim(self, epoch: Epoch, attempt: str, record: str, run: str, at: Optional[float] = None) -> None:
        """Claim an epoch for one execution. Not idempotent: one wrapper claims once.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            record: the record's id, or empty for a run by hand.
            run: a random id of the wrapper that claims.
            at: when, in seconds since 1970, where the generation has a total deadline.

        Raises:
            DuplicateExecution: the epoch is claimed, or a later epoch's execution has started. Nothing was changed.
            MalformedName: ``claims/`` holds a name that is no epoch.
            MalformedDocument: a claim or the other's ``started.json`` is not a document.
        """
        split_attempt(attempt)
        make_claim(self.store, Claim(epoch, attempt, record, run, at))

    def start(
        self, epoch: Epoch, attempt: str, details: Mapping[str, Any], identity: Optional[Mapping[str, str]] = None
    ) -> None:
        """Make the execution's own folder and write its ``started.json``. After :meth:`claim`; once.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            details: JSON values worth keeping, such as host, pid and started_at.
            identity: the digests of what makes the run this run.

        Raises:
            DuplicateExecution: this attempt has started before.
        """
        reach("exec-folder")
        self.store.make_folder(exec_folder(attempt))
        document = {**details, "epoch": epoch.number, "attempt": attempt, "identity": dict(identity or {})}
        reach("started")
        try:
            create_once(self.store.ledger(meta_folder(attempt)), STARTED_DOCUMENT, document)
        except Exists:
            raise DuplicateExecution(
                f"attempt {attempt} has started in {self.location} already; submit again for an attempt of its own"
            ) from None

    def started(self, attempt: str) -> Optional[Started]:
        """What an execution said of itself when it started; None where it has not.

        Raises:
            MalformedDocument: ``started.json`` is not such a document.
        """
        return read_started(self.store, attempt)

    def pin(
        self, epoch: Epoch, attempt: str, choice: ResumeChoice, identity: Optional[Mapping[str, str]] = None
    ) -> Pin:
        """Decide once what this execution resumes from, and import it. A decision that was noted before is returned.

        The save is imported first: what cannot be imported because its writer has just rotated it away is passed over.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            choice: which publications may be taken.
            identity: the digests of what makes the run this run.

        Raises:
            UnusableCheckpoint: saves are published and none is usable.
            IdentityChanged: the save belongs to a different run.
            MalformedName: a ledger that the decision depends on holds a malformed name.
            MalformedDocument: the noted decision is not one.
        """
        return make_pin(self.store, epoch, attempt, choice, identity or {})

    def pinned(self, attempt: str) -> Optional[Pin]:
        """What an execution resumes from; None where it has not decided.

        Raises:
            MalformedDocument: ``resume.json`` is not a pin.
        """
        return read_pin(self.store, attempt)

    def latest(
        self,
        choice: Optional[ResumeChoice] = None,
        below: Optional[Epoch] = None,
        identity: Optional[Mapping[str, str]] = None,
    ) -> Resume:
        """Find the greatest publication, by epoch, step and path, that is whole. Changes nothing.

        A publication is taken if it lies in the folder of an execution whose ``started.json`` has the name's epoch, is
        neither pruned nor barred, and one of its manifests matches it in every field and has all its files there, with
        their sizes. What is passed over on the way is told, with the reason.

        Args:
            choice: which publications may be taken; all where left out.
            below: the epoch that looks; only lesser ones are taken. None to take any.
            identity: the digests of what makes the run this run; None to take a save of any run.

        Returns:
            The resume point; its publication is None for a start from scratch.

        Raises:
            UnusableCheckpoint: saves are published and none is usable; the text names them.
            IdentityChanged: the save belongs to a different run; the text names the fields.
            MalformedName: a ledger that the decision depends on holds a malformed name.
        """
        return choose(self.store, choice or ResumeChoice(), below, identity)

    def publish(
        self,
        epoch: Epoch,
        attempt: str,
        path: str,
        step: Optional[int] = None,
        state: str = "",
        identity: Optional[Mapping[str, str]] = None,
        snapshot: bool = False,
        still_whole: Optional[Callable[[], bool]] = None,
    ) -> Publication:
        """Make one whole save of this execution visible to later ones. Durable when it returns.

        Publishing the same path as the same step again is success, and adds a manifest of what lies there now. A
        program that writes over its saves has them copied first, by ``snapshot``; then the copy is what is published.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            path: the save, relative to this root: a file or folder in ``exec/<attempt>/``, or one that the helper
                itself put among this execution's snapshots.
            step: the program's own step, 0 to 2^63-1. None to number it within the execution, which takes a snapshot:
                the step is that snapshot's number, greater than every one before, whichever process publishes.
            state: the program's own resume state, at most 64 KiB.
            identity: the digests of what makes the run this run.
            snapshot: whether the program may write over it later.
            still_whole: asked last, just before the save gets its name, whether what made the caller publish it holds.

        Raises:
            Unpublishable: the path lies elsewhere or is too long, there is no save, it holds what no save may hold, it
                changed meanwhile, or it was published as another step.
            Barred: its files failed to reach the disk, now or before.
            UsageError: the step is out of range, or is missing without a snapshot.
        """
        from prefect_dispatch.stores.publisher import publish_save

        return publish_save(self.store, epoch, attempt, path, step, state, identity or {}, snapshot, still_whole)

    def publish_state(
        self, epoch: Epoch, attempt: str, state: str, identity: Optional[Mapping[str, str]] = None
    ) -> Publication:
        """Publish a save that is its state alone, numbered within the execution. Durable when it returns.

        Raises:
            Unpublishable: the state cannot be one.
            Barred: it failed to reach the disk.
        """
        from prefect_dispatch.stores.publisher import publish_state

        return publish_state(self.store, epoch, attempt, state, identity or {})

    def publish_set(
        self,
        epoch: Epoch,
        attempt: str,
        paths: Sequence[str],
        state: str = "",
        identity: Optional[Mapping[str, str]] = None,
        still_whole: Optional[Callable[[], bool]] = None,
    ) -> Publication:
        """Publish a copy of several files and folders as one save, numbered within the execution.

        Durable when it returns. In the copy each lies where it lies in the execution's own folder.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            paths: the files and folders, relative to this root, in the execution's own folder.
            state: the program's own resume state.
            identity: the digests of the run's identity.
            still_whole: asked once the copy is made; if not, nothing is published.

        Raises:
            Unpublishable: one of them is not there, is no part of a save, or changed meanwhile.
            Barred: it failed to reach the disk.
            StoreError: the store failed.
        """
        from prefect_dispatch.stores.publisher import publish_set

        return publish_set(self.store, epoch, attempt, paths, state, identity or {}, still_whole)

    def publications(self) -> List[Publication]:
        """All publications, ordered by epoch, step and path; whether their saves are whole is not looked at.

        Raises:
            MalformedName: a name of ``pub/`` is not a publication's.
        """
        return list_publications(self.store)

    def complete(
        self,
        epoch: Epoch,
        attempt: str,
        key: str,
        result: Optional[Mapping[str, Any]] = None,
        nonce: str = "",
        path: str = "",
    ) -> FinishedPart:
        """Note that this execution has finished one part of the work. Durable when it returns.

        What the part wrote is made durable first where it is named; else that is the caller's. The first entry of an
        execution for a key stays. The same call again, with its own nonce, is success.

        Args:
            epoch: the execution's epoch.
            attempt: its attempt.
            key: which part, 1 to 146 bytes of UTF-8 without NUL.
            result: JSON values that say what came of it, such as the file that was written; 64 KiB with all else.
            nonce: the writer's mark, where the caller retries by itself.
            path: the file or folder that the part wrote, relative to this root, in the execution's own folder.

        Raises:
            Exists: this execution has noted that part already, by another call.
            Unpublishable: what the part wrote is not there, not whole, or another execution's.
            UsageError: the key cannot be one, or the result is not JSON or too long.
        """
        from prefect_dispatch.stores.completions import complete_part

        return complete_part(self.store, epoch, attempt, key, result or {}, nonce, path)

    def completions(self, choice: Optional[ResumeChoice] = None, below: Optional[Epoch] = None) -> Completions:
        """Find for each key the entry that counts: that of the greatest epoch which the choice admits. Reads no entry.

        An entry whose epoch nobody has claimed and started is passed over, with the reason: its name is forged.

        Args:
            choice: from which epochs on a part counts as finished; every one where left out.
            below: only entries of lesser epochs count. None to take any.

        Raises:
            MalformedName: ``done/`` holds a malformed name.
        """
        from prefect_dispatch.stores.completions import choose_completions

        return choose_completions(self.store, choice or ResumeChoice(), below)

    def part_path(self, attempt: str, part: FinishedPart) -> str:
        """Where what a part wrote can be read on this machine, absolute; fetched from the store where it has to be.

        Args:
            attempt: the execution that reads it.
            part: the part; it names what it wrote.

        Raises:
            Absent: it is not what the part's entry says any more.
            StoreError: the store failed.
        """
        from prefect_dispatch.stores.completions import place_part

        return self.absolute(place_part(self.store, attempt, part))

    def finished_part(self, completion: Completion) -> FinishedPart:
        """Read what an execution said of a part that it has finished.

        Raises:
            Absent: there is no such entry.
            MalformedDocument: it is not an entry, or not the one that its name says.
        """
        from prefect_dispatch.stores.completions import read_completion

        return read_completion(self.store, completion)

    def journal(self, attempt: str) -> Journal:
        """The journal of one execution."""
        folder = journal_folder(attempt)
        return Journal(self.store.ledger(folder), folder)

    def check(self) -> List[Fault]:
        """Compare the root with the format: every name, every document, and what they say of one another.

        Never raises for what it finds. Saves that are no longer whole are notes: programs may delete their own.

        Raises:
            StoreUnreachable: the root is not there, or the credentials do not open it.
            StoreError: the store cannot be asked at all.
        """
        from prefect_dispatch.stores.check import check_root  # For people; no execution needs it.

        return check_root(self.store)

    def _check_bound_to(self, record: str, lineage: str) -> None:
        document = read_root_format(self.store)
        for name, mine in (("record", record), ("lineage", lineage)):
            theirs = field(document, name, str, f"{self.location}/{FORMAT_DOCUMENT}")
            if mine and theirs and mine != theirs:
                raise UnknownFormat(
                    f"{self.location} belongs to {name} {theirs!r}, not to {mine!r}; choose another root or lineage"
                ) from None
