"""A job, resolved: a spec with every place made absolute, so that it can be taken up without its surroundings."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from prefect_dispatch.model.spec import JobSpec


class ResolvedJob(BaseModel):
    """What a lineage is opened with.

    Attributes:
        spec: the job as the user wrote it.
        workdir: where its program runs, absolute.
        root: the checkpoint root, absolute.
        record_root: the record root, absolute; the same as ``root`` where the spec says nothing.
        scheduler: the scheduler's settings: ``type``, and what that type takes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: JobSpec
    workdir: str
    root: str
    record_root: str
    scheduler: dict[str, Any]
