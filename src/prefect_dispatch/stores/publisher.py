"""Publishing: what has to hold before a save gets its name, and the order in which it becomes durable."""

from __future__ import annotations

from contextlib import suppress

from prefect_dispatch.errors import (
    Absent,
    Barred,
    Exists,
    MalformedDocument,
    NotDurable,
    StoreError,
    StoreUnreachable,
    Unpublishable,
    UsageError,
)
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import Manifest, SavedFile, check_manifest_name, is_short, manifest_prefix
from prefect_dispatch.format.names import check_path, encode_part, new_nonce
from prefect_dispatch.format.publication import Publication, check_step
from prefect_dispatch.format.resume_state import check_state
from prefect_dispatch.stores.journal import Journal
from prefect_dispatch.stores.layout import (
    PUBLICATIONS,
    barred_folder,
    exec_folder,
    journal_folder,
    manifests_folder,
    owner_of,
)
from prefect_dispatch.stores.snapshots import STATE_FILE, keep_state, take_snapshot
from prefect_dispatch.stores.verdict import read_barred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

    from prefect_dispatch.stores.port import Store


def publish_save(
    store: Store,
    epoch: Epoch,
    attempt: str,
    path: str,
    step: Optional[int],
    state: str,
    identity: Mapping[str, str],
    snapshot: bool,
    still_whole: Optional[Callable[[], bool]] = None,
) -> Publication:
    """Publish one save; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.publish`."""
    if step is not None:
        check_step(step)
    elif not snapshot:
        raise UsageError(f"save {path!r} has no step, and only a snapshot's number can be one; give its step")
    _check_state_of(path, state)
    _check_own_path(path, attempt)
    files = _files_of(store, path)
    if snapshot:
        number, copy = take_snapshot(store, attempt, path, files)
        # Asked before the copy is made durable: what becomes of the original meanwhile is nothing to the copy.
        _check_still_whole(path, still_whole)
        publication = Publication(epoch, number if step is None else step, copy)
    else:
        assert step is not None
        publication = Publication(epoch, step, path)
        if path in read_barred(store, attempt):
            raise Barred(_barred_text(path))
        _check_first_of_its_path(store, attempt, publication)
    manifest = Manifest(publication, files, new_nonce(), state, identity, path)
    try:
        return _publish(store, attempt, manifest, None if snapshot else still_whole)
    except Exists:
        if snapshot:
            raise
    # What an earlier try has left there, or an earlier save of this step, is of other bytes and stays as it is.
    return publish_save(store, epoch, attempt, path, step, state, identity, True, still_whole)


def publish_set(
    store: Store,
    epoch: Epoch,
    attempt: str,
    paths: Sequence[str],
    state: str,
    identity: Mapping[str, str],
    still_whole: Optional[Callable[[], bool]] = None,
) -> Publication:
    """Publish a data set; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.publish_set`."""
    own = exec_folder(attempt)
    _check_state_of(own, state)
    found: Dict[str, SavedFile] = {}
    for path in paths:
        _check_own_path(path, attempt)
        for file in _files_of(store, path):
            name = f"{path[len(own) + 1 :]}/{file.path}".rstrip("/")
            digest = file.digest if is_short(name, file.size) else None
            found[name] = SavedFile(name, file.size, file.mtime_ns, file.link, digest)
    files = tuple(found[name] for name in sorted(found))
    number, copy = take_snapshot(store, attempt, own, files)
    _check_still_whole(own, still_whole)
    publication = Publication(epoch, number, copy)
    return _publish(store, attempt, Manifest(publication, files, new_nonce(), state, identity, own))


def publish_state(store: Store, epoch: Epoch, attempt: str, state: str, identity: Mapping[str, str]) -> Publication:
    """Publish a state; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.publish_state`."""
    _check_state_of(STATE_FILE, state)
    number, path = keep_state(store, attempt, state)
    publication = Publication(epoch, number, path)
    return _publish(store, attempt, Manifest(publication, _files_of(store, path), new_nonce(), state, identity))


def _publish(
    store: Store, attempt: str, manifest: Manifest, still_whole: Optional[Callable[[], bool]] = None
) -> Publication:
    """Make a save durable, then write its manifest, then give it its name."""
    publication, path = manifest.publication, manifest.source
    content = _encode(manifest)
    try:
        reach("sync-save")
        files = store.sync(publication.path, manifest.files)
        if files != manifest.files:
            manifest = Manifest(publication, files, manifest.nonce, manifest.state, manifest.identity, path)
            content = _encode(manifest)
        _check_still_whole(path, still_whole)
        reach("manifest")
        # The manifest's name carries our nonce: one that exists is our own, made by a retry below us.
        with suppress(Exists):
            store.ledger(manifests_folder(attempt)).create(manifest.name, content)
        reach("publication")
        with suppress(Exists):
            store.ledger(PUBLICATIONS).create(publication.name)
    except NotDurable as error:
        _bar(store, attempt, publication, str(error))
        raise Barred(f"{_barred_text(publication.path)}: {error}") from error
    except Absent as error:
        raise Unpublishable(
            f"save {path!r} changed while it was published: {error}; publish it when it is whole"
        ) from None
    return publication


def _encode(manifest: Manifest) -> bytes:
    """Write a manifest.

    Raises:
        Unpublishable: it would be longer than a reader accepts.
    """
    content = manifest.encode()
    if len(content) > MAX_DOCUMENT_BYTES:
        raise Unpublishable(
            f"save {manifest.source!r} has {len(manifest.files)} files, whose list takes {len(content)} bytes; "
            f"a manifest has at most {MAX_DOCUMENT_BYTES}: write fewer, larger files"
        )
    return content


def _check_still_whole(path: str, still_whole: Optional[Callable[[], bool]]) -> None:
    if still_whole is not None and not still_whole():
        raise Unpublishable(f"save {path!r} changed while it was published; publish it when it is whole")


def _check_state_of(path: str, state: str) -> None:
    try:
        check_state(state)
    except UsageError as error:
        raise Unpublishable(f"save {path!r}: {error}") from None


def _check_own_path(path: str, attempt: str) -> None:
    try:
        check_path(path)
    except UsageError as error:
        raise Unpublishable(str(error)) from None
    own = exec_folder(attempt)
    if owner_of(path) != attempt:
        raise Unpublishable(f"save {path!r} is not in this execution's folder; write it to {own}/ (DISPATCH_EXEC_DIR)")


def _files_of(store: Store, path: str) -> Tuple[SavedFile, ...]:
    try:
        files = store.files(path)
    except Absent:
        raise Unpublishable(f"save {path!r} is not in {store.location}; publish a save when it is whole") from None
    if not files:
        raise Unpublishable(f"save {path!r} holds no file; publish a save when it is whole")
    return files


def _check_first_of_its_path(store: Store, attempt: str, publication: Publication) -> None:
    """Refuse a path that this execution has published under another step: its bytes are that step's no more."""
    mark = manifest_prefix(publication)[20:]
    pub = store.ledger(PUBLICATIONS)
    for name in store.ledger(manifests_folder(attempt)).names():
        step = int(check_manifest_name(name)[:20])
        if name[20:].startswith(mark) and step != publication.step:
            try:
                pub.read(Publication(publication.epoch, step, publication.path).name)
            except Absent:
                continue
            raise Unpublishable(
                f"save {publication.path!r} was published as step {step} and cannot be step {publication.step} too; "
                "write each save to a path of its own, or publish it with a snapshot"
            )


def _bar(store: Store, attempt: str, publication: Publication, why: str) -> None:
    """Note that the files of this path failed to reach the disk, which may refuse this note too."""
    reach("bar")
    try:
        store.ledger(barred_folder(attempt)).create(encode_part(publication.path))
    except (StoreError, StoreUnreachable):
        pass
    try:
        journal = Journal(store.ledger(journal_folder(attempt)), journal_folder(attempt))
        journal.append("barred", path=publication.path, step=publication.step, why=why)
    except (StoreError, StoreUnreachable, MalformedDocument):
        pass


def _barred_text(path: str) -> str:
    return f"save {path!r} is barred: its files failed to reach the disk; write the next save to another path"
