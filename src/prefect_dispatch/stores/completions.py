"""Finished parts: how an execution notes one in ``done/``, and which entries count for a resume choice."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, Exists, MalformedDocument, MalformedName, Unpublishable, UsageError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.completion import Completion
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import FORMAT, encode, field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import SavedFile, decode_files, encode_files
from prefect_dispatch.format.names import check_path, new_nonce, split_attempt
from prefect_dispatch.format.printable import printable, shorten
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.claim import read_claim
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.layout import DONE, import_path, owner_of
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.stores.started import read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from prefect_dispatch.stores.port import Store

MAX_COMPLETION_BYTES = 64 * 1024
"""The longest entry: what a part has to say of itself is small, and a root may hold 100,000 of them."""


@dataclass(frozen=True)
class FinishedPart:
    """What one entry of ``done/`` holds.

    Args:
        completion: its name.
        attempt: the execution that finished the part.
        result: what that execution said of it.
        nonce: the mark of its writer.
        path: the file or folder that it wrote, relative to the lineage's root; empty where it named none.
        files: that one's files, as they were when the part was noted.
    """

    completion: Completion
    attempt: str
    result: Mapping[str, Any]
    nonce: str
    path: str = ""
    files: Tuple[SavedFile, ...] = ()


@dataclass(frozen=True)
class Completions:
    """Which parts are finished.

    Args:
        parts: for each key the entry that counts, that of the greatest epoch; ordered by the keys' bytes.
        passed_over: entries that would count but for what is wrong with them, and why.
    """

    parts: Mapping[str, Completion]
    passed_over: Tuple[Tuple[Completion, str], ...] = ()


def complete_part(
    store: Store, epoch: Epoch, attempt: str, key: str, result: Mapping[str, Any], nonce: str = "", path: str = ""
) -> FinishedPart:
    """Note a part as finished; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.complete`."""
    split_attempt(attempt)
    completion = Completion(key, epoch)
    files: Tuple[SavedFile, ...] = ()
    if path:
        if owner_of(path) != attempt:
            raise Unpublishable(
                f"{printable(path)} of part {key!r} is not in its execution's own folder; write it there"
            )
        try:
            files = store.sync(path, store.files(path))
        except (Absent, Exists) as error:
            raise Unpublishable(f"{printable(path)} of part {key!r} is not whole: {error}") from None
    part = FinishedPart(completion, attempt, dict(result), nonce or new_nonce(), path, files)
    fields: Dict[str, Any] = {"key": key, "epoch": epoch.number, "attempt": attempt, "result": part.result}
    if path:
        fields.update(path=path, files=encode_files(files))
    try:
        size = len(encode({**fields, "format": FORMAT, "nonce": part.nonce}))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the result of part {key!r} is not JSON: {error or 'nested too deeply'}") from None
    if size > MAX_COMPLETION_BYTES:
        raise UsageError(
            f"the result of part {key!r} makes an entry of {size} bytes, and one has at most {MAX_COMPLETION_BYTES}; "
            "write it to a file and name that"
        )
    reach("complete")
    create_once(store.ledger(DONE), completion.name, fields, part.nonce)
    return part


def list_completions(store: Store) -> List[Completion]:
    """All entries of ``done/``, ordered by key and epoch.

    Raises:
        MalformedName: a name there is not a completion's.
        StoreError: the store failed.
    """
    completions = [Completion.parse(name) for name in store.ledger(DONE).names()]
    return sorted(completions, key=lambda completion: completion.order)


def choose_completions(store: Store, choice: ResumeChoice, below: Optional[Epoch] = None) -> Completions:
    """Find the entries that count; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.completions`."""
    doubts: Dict[Epoch, str] = {}
    parts: Dict[str, Completion] = {}
    passed_over: List[Tuple[Completion, str]] = []
    for completion in list_completions(store):
        epoch = completion.epoch
        if not choice.admits(epoch) or (below is not None and epoch >= below):
            continue
        if epoch not in doubts:
            doubts[epoch] = _doubt(store, epoch)
        if doubts[epoch]:
            passed_over.append((completion, doubts[epoch]))
        else:
            parts[completion.key] = completion  # In order of the epochs, so that the greatest stays.
    return Completions(parts, tuple(passed_over))


def read_completion(store: Store, completion: Completion) -> FinishedPart:
    """Read an entry of ``done/``.

    Raises:
        Absent: it is not there.
        MalformedDocument: it is not an entry, too long for one, or not the one that its name says.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    what = f"{store.location}/{DONE}/{completion.name}"
    document = read_document(store.ledger(DONE), completion.name, what)
    size = len(encode(document))
    if size > MAX_COMPLETION_BYTES:
        raise MalformedDocument(f"{what} has {size} bytes; an entry has at most {MAX_COMPLETION_BYTES}")
    own = {"key": completion.key, "epoch": completion.epoch.number}
    for name, value in own.items():
        if field(document, name, type(value), what) != value:
            shown = shorten(document[name])
            raise MalformedDocument(f"{what} has {name} = {shown}, and its name says {shorten(value)}")
    attempt = field(document, "attempt", str, what)
    try:
        split_attempt(attempt)
    except MalformedName as error:
        raise MalformedDocument(f"{what}: {error}") from None
    result: Dict[str, Any] = field(document, "result", dict, what)
    path = ""
    files: Tuple[SavedFile, ...] = ()
    if "path" in document:
        path = field(document, "path", str, what)
        try:
            check_path(path)
        except UsageError as error:
            raise MalformedDocument(f"{what}: {error}") from None
        if owner_of(path) != attempt:
            raise MalformedDocument(
                f"{what} names {shorten(path)}, which is not in the folder of its attempt {attempt}"
            )
        files = decode_files(document, what)
    return FinishedPart(completion, attempt, result, field(document, "nonce", str, what), path, files)


def place_part(store: Store, attempt: str, part: FinishedPart) -> str:
    """Have on this machine what a part wrote; its path relative to the root. See ``LineageRoot.part_path``."""
    difference = store.difference(part.path, part.files)
    if difference is not None:
        key = part.completion.key
        raise Absent(f"part {key!r} of {part.attempt} is not what it was when it was finished: {difference}")
    if not is_url(store.location):
        return part.path
    target = import_path(attempt, f"{new_nonce()}/{part.path.rpartition('/')[2]}")
    store.copy(part.path, target, part.files)
    return target


def _doubt(store: Store, epoch: Epoch) -> str:
    """Why no execution of this epoch can have finished anything; empty where one can.

    A forged epoch must not outrank what is really done: an entry counts only where its epoch was claimed, and the one
    who claimed it has started. Both are written before any entry, so that no race makes an honest one look forged.
    """
    try:
        claim = read_claim(store, epoch)
        started = read_started(store, claim.attempt)
    except Absent:
        return f"epoch {epoch} was never claimed"
    except MalformedDocument as error:
        return str(error)
    if started is None:
        return f"attempt {claim.attempt}, which claimed epoch {epoch}, has no started.json"
    if started.epoch != epoch:
        return f"attempt {claim.attempt}, which claimed epoch {epoch}, is of epoch {started.epoch}"
    return ""
