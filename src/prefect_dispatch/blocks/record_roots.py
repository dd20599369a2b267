"""Which records a poller looks after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from prefect_dispatch.blocks.checkpoint_store import CheckpointStore
from prefect_dispatch.errors import SpecError, UsageError

_SLUG = CheckpointStore.get_block_type_slug()


async def record_roots(stores: Iterable[str] | None, jobs: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """The record roots to look after, each once.

    Args:
        stores: blocks ``checkpoint-store/NAME`` and folders; None for all blocks.
        jobs: jobs whose own inline stores are looked after too, as they are written in a spec.

    Raises:
        SpecError: Prefect has no block of a name.
        UsageError: a folder is not absolute, or a URL of a store that this version does not have.
    """
    roots = [await _root_of(each) for each in (await _all_blocks() if stores is None else stores)]
    for job in jobs:
        store = job.get("store")
        if isinstance(store, Mapping):
            root = store.get("record_root") or store.get("root")
            if isinstance(root, str) and Path(root).is_absolute():
                roots.append(root)
    return list(dict.fromkeys(roots))


async def _root_of(store: str) -> str:
    slug, _, name = store.partition("/")
    if slug != _SLUG or not name:
        if not Path(store).is_absolute():
            raise UsageError(f"store {store!r} is neither a block {_SLUG}/NAME nor an absolute folder")
        return store
    try:
        block: Any = await CheckpointStore.aload(name)
    except ValueError:
        raise SpecError(f"store {store!r}: Prefect has no block of that name") from None
    return str(block.records)


async def _all_blocks() -> list[str]:
    async with get_client() as client:
        try:
            documents = await client.read_block_documents_by_type(_SLUG, include_secrets=False)
        except ObjectNotFound:
            return []
    return [f"{_SLUG}/{document.name}" for document in documents if document.name]
