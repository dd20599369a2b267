"""Finished parts: work in pieces, such as frames or shards, of which every execution does only what is left."""

from __future__ import annotations

import os
from contextlib import suppress

from prefect_dispatch.errors import Absent, Exists, NothingPublished, Unpublishable, UsageError
from prefect_dispatch.format.completion import Completion, check_key
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.job.execution import Execution
from prefect_dispatch.stores.layout import exec_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional, TypeVar, Union

    from prefect_dispatch.stores.completions import Completions

    Key = TypeVar("Key", str, int)

_MOST_NAMED = 10


@dataclass(frozen=True)
class Part:
    """One finished part.

    Args:
        key: which.
        attempt: the execution that finished it.
        result: what that one said of it.
        path: what it wrote, absolute, as it can be read on this machine; None where it named nothing.
    """

    key: str
    attempt: str
    result: Mapping[str, Any]
    path: Optional[str]


def complete(key: Union[str, int], path: Optional[str] = None, **result: Any) -> None:
    """Note that a part of the work is finished, for good. Durable when it returns; a second time it changes nothing.

    Args:
        key: which part; a number counts as its decimal digits. 1 to 146 bytes of UTF-8 without NUL.
        path: the file or folder that it wrote, inside of ``DISPATCH_EXEC_DIR``; absolute or relative to the working
            folder. It is made durable first, and must not be written to any more.
        result: JSON values that say what came of it; with all else at most 64 KiB.

    Raises:
        UsageError: this process belongs to no execution, the key cannot be one, or the result is not JSON or too long.
        Unpublishable: the path is not there, or lies elsewhere.
        StoreError: the store failed.
    """
    execution = Execution.of_environment(os.environ)
    name = _name(key)
    inside = ""
    if path is not None:
        found = execution.inside(os.fspath(path))
        if found is None:
            raise Unpublishable(
                f"{os.fspath(path)!r} of part {name!r} is not inside of {execution.folder}; write it there"
            )
        inside = f"{exec_folder(execution.attempt)}/{found}"
    try:
        if inside:
            # What an entry names already stays as it is, whatever was written there since.
            with suppress(Absent):
                execution.root.finished_part(Completion(name, execution.epoch))
                return
        execution.root.complete(execution.epoch, execution.attempt, name, result, path=inside)
    except Exists:
        pass


def completed() -> Dict[str, Mapping[str, Any]]:
    """The parts that are finished, by this execution or an earlier one whose work it goes on with, and their results.

    Ordered by the keys' bytes. After a start from scratch, those from before do not count.

    Raises:
        UsageError: this process belongs to no execution.
        MalformedDocument: what is noted of one is not readable.
        StoreError: the store failed.
    """
    execution = Execution.of_environment(os.environ)
    root, parts = execution.root, _counted(execution).parts
    return {key: root.finished_part(completion).result for key, completion in parts.items()}


def remaining(keys: Iterable[Key]) -> List[Key]:
    """Those of these parts that are still to be done, in the order given, each once.

    Raises:
        UsageError: this process belongs to no execution, or a key cannot be one.
        StoreError: the store failed.
    """
    finished = set(_counted(Execution.of_environment(os.environ)).parts)
    return [key for name, key in {_name(key): key for key in keys}.items() if name not in finished]


def merge(keys: Iterable[Union[str, int]]) -> List[Part]:
    """All of these parts, in the order given, each once: what a result may be put together from.

    Of a part that several executions finished it is the one of the greatest epoch. A file that no entry names is never
    among them. What is not on this machine is fetched.

    Raises:
        NothingPublished: some of them are not finished; named.
        Absent: what one of them wrote is not what it was when the part was finished.
        UsageError: this process belongs to no execution, or a key cannot be one.
        StoreError: the store failed.
    """
    execution = Execution.of_environment(os.environ)
    root, parts = execution.root, _counted(execution).parts
    names = list(dict.fromkeys(_name(key) for key in keys))
    missing = [name for name in names if name not in parts]
    if missing:
        named = ", ".join(repr(name) for name in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
        raise NothingPublished(
            f"{len(missing):,} of {len(names):,} parts are not finished: {named}{more}; do them first"
        )
    merged: List[Part] = []
    for name in names:
        part = root.finished_part(parts[name])
        path = root.part_path(execution.attempt, part) if part.path else None
        merged.append(Part(name, part.attempt, part.result, path))
    return merged


def _counted(execution: Execution) -> Completions:
    return execution.root.completions(execution.choice, Epoch.of(execution.epoch.number + 1))


def _name(key: Union[str, int]) -> str:
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise UsageError(f"key {key!r} is neither text nor a whole number; name the part by one of them")
    return check_key(str(key))
