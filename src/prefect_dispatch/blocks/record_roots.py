"""Which records a poller looks after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from prefect_dispatch.blocks.checkpoint_store import CheckpointStore
from prefect_dispatch.errors import DispatchError, SpecError, UsageError
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.supervisor.places import absolute_root

_SLUG = CheckpointStore.get_block_type_slug()


async def all_stores() -> list[str]:
    """All blocks of checkpoint stores, as ``checkpoint-store/NAME``."""
    async with get_client() as client:
        try:
            documents = await client.read_block_documents_by_type(_SLUG, include_secrets=False)
        except ObjectNotFound:
            return []
    return [f"{_SLUG}/{document.name}" for document in documents if document.name]


async def record_root_of(store: str) -> str:
    """The record root of a block ``checkpoint-store/NAME``, or of a folder.

    Raises:
        SpecError: Prefect has no block of that name.
        UsageError: it is neither, or the block's root is a URL of a store that this version does not have.
    """
    slug, _, name = store.partition("/")
    if slug != _SLUG or not name:
        if not _is_absolute(store):
            raise UsageError(
                f"store {store!r} is neither a block {_SLUG}/NAME nor an absolute folder nor s3://BUCKET/PREFIX"
            )
        return absolute_root(store, Path("/"))
    try:
        block: Any = await CheckpointStore.aload(name)
    except ValueError:
        raise SpecError(f"store {store!r}: Prefect has no block of that name") from None
    return str(block.records)


async def looked_after(
    stores: Sequence[str] | None, jobs: Iterable[Mapping[str, Any]], troubles: list[str]
) -> list[str]:
    """The record roots that a poller looks after, each once. A store that cannot be used hides no other one.

    Args:
        stores: blocks or folders; None for all blocks, and what the jobs name themselves.
        jobs: the jobs of runs that Prefect knows.
        troubles: what cannot be used is added.
    """
    found: list[str] = []
    for store in await all_stores() if stores is None else stores:
        try:
            found.append(await record_root_of(store))
        except DispatchError as error:
            troubles.append(str(error))
    return list(dict.fromkeys([*found, *(inline_roots(jobs) if stores is None else ())]))


def inline_roots(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The record roots that jobs name themselves, each once."""
    return list(dict.fromkeys(root for job in jobs if (root := inline_root(job)) is not None))


def inline_root(job: Mapping[str, Any]) -> str | None:
    """The record root that a job names itself, as a spec has it; None where a block does, or it is relative."""
    store = job.get("store")
    if not isinstance(store, Mapping):
        return None
    root = store.get("record_root") or store.get("root")
    if not isinstance(root, str) or not _is_absolute(root):
        return None
    try:
        return absolute_root(root, Path("/"))
    except UsageError:
        return None  # A run that names what is no root has opened nothing.


def _is_absolute(root: str) -> bool:
    return is_url(root) or Path(root).is_absolute()
