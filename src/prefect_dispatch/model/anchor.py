"""Anchoring a spec: its relative places, made absolute."""

from __future__ import annotations

from pathlib import PurePath

from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.spec import InlineScheduler, InlineStore, JobSpec


def anchored(spec: JobSpec, base: PurePath) -> JobSpec:
    """A spec whose places do not depend on where it is read: relative ones are relative to ``base``, the spec's folder.

    Args:
        spec: the job.
        base: an absolute folder.

    Raises:
        SpecError: its name is not UTF-8, as records and submissions are.
    """
    try:
        str(base).encode("utf-8")
    except UnicodeEncodeError:
        raise SpecError(
            f"the job's folder {printable(repr(str(base)))} has a name that is not UTF-8; rename it or move the job"
        ) from None

    def place(path: str) -> str:
        if "://" in path:
            return path
        return str(PurePath(_normalised(base / path)))

    changes: dict[str, object] = {"workdir": place(spec.workdir)}
    if spec.workplace is not None:
        changes["workplace"] = place(spec.workplace)
    if isinstance(spec.store, InlineStore):
        record_root = place(spec.store.record_root) if spec.store.record_root is not None else None
        changes["store"] = InlineStore(root=place(spec.store.root), record_root=record_root)
    if isinstance(spec.scheduler, InlineScheduler):
        settings = spec.scheduler.model_dump()
        # Behind a command prefix the places are the site's.
        for name in () if settings.get("command_prefix") else ("state_folder", "log_folder"):
            if isinstance(settings.get(name), str):
                settings[name] = place(settings[name])
        changes["scheduler"] = InlineScheduler.model_validate(settings)
    return spec.model_copy(update=changes)


def _normalised(path: PurePath) -> PurePath:
    """Take '..' and '.' out by their text, so that the same place is always written the same."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part != "..":
            parts.append(part)
    return PurePath(*parts)
