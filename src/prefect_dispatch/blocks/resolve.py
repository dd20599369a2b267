"""From a job spec to a resolved job: blocks are loaded, inline parts checked, places made absolute."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from prefect_dispatch.blocks.checkpoint_store import CheckpointStore
from prefect_dispatch.blocks.local_scheduler import LocalScheduler
from prefect_dispatch.blocks.slurm_scheduler import SlurmScheduler
from prefect_dispatch.errors import SpecError
from prefect_dispatch.model.anchor import anchored
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.spec import InlineStore, JobSpec
from prefect_dispatch.schedulers.registry import read_settings
from prefect_dispatch.supervisor.places import absolute_root, check_root

B = TypeVar("B", CheckpointStore, LocalScheduler, SlurmScheduler)


async def resolve(spec: JobSpec, base: Path) -> ResolvedJob:
    """Resolve a spec.

    Args:
        spec: the job.
        base: what its relative places are relative to, absolute.

    Raises:
        SpecError: it names a block that is not there, or asks for what its scheduler or store does not have.
    """
    own = anchored(spec, base)
    root, record_root = await _roots(own)
    settings = await _scheduler_settings(own, base)
    check_root(root)
    check_root(record_root)
    return ResolvedJob(spec=own, workdir=own.workdir, root=root, record_root=record_root, scheduler=settings)


async def _roots(spec: JobSpec) -> tuple[str, str]:
    if isinstance(spec.store, InlineStore):
        root, record_root = spec.store.root, spec.store.record_root or spec.store.root
        return absolute_root(root, Path("/")), absolute_root(record_root, Path("/"))
    store = await _load(CheckpointStore, spec.store, "store")
    return store.checkpoint_root, store.records


async def _scheduler_settings(spec: JobSpec, base: Path) -> dict[str, Any]:
    if not isinstance(spec.scheduler, str):
        return read_settings(spec.scheduler.model_dump(), base)
    if spec.scheduler.startswith(f"{SlurmScheduler.get_block_type_slug()}/"):
        return (await _load(SlurmScheduler, spec.scheduler, "scheduler")).settings()
    return (await _load(LocalScheduler, spec.scheduler, "scheduler")).settings()


async def _load(kind: type[B], reference: str, field: str) -> B:
    slug, _, name = reference.partition("/")
    expected = kind.get_block_type_slug()
    if slug != expected or not name:
        raise SpecError(f"{field} {reference!r} does not name a block; write {expected}/NAME, or give it inline")
    try:
        return await kind.aload(name)
    except ValueError:
        raise SpecError(
            f"{field} {reference!r}: Prefect has no block of that name; create it, or give the {field} inline"
        ) from None
