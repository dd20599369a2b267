"""From a scheduler's settings, as specs and records carry them, to the scheduler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.model.fields import Duration, PositiveDuration, Word
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.schedulers.cessation import CessationSignal
from prefect_dispatch.schedulers.local import WRAPPER, LocalScheduler
from prefect_dispatch.schedulers.local_cessation import LocalCessation
from prefect_dispatch.schedulers.local_request import (
    describe_program_refusal,
    describe_resource_refusal,
    job_environment,
    job_path,
)
from prefect_dispatch.schedulers.local_state import describe_folder_refusal
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.schedulers.slurm.script import describe_option_refusal
from prefect_dispatch.schedulers.slurm.settings import SlurmSettings
from prefect_dispatch.settings import state_folder


class LocalSettings(BaseModel):
    """The settings of the local scheduler.

    Attributes:
        type: ``local``.
        slots: how many jobs may run at a time.
        linger: how long the processes of a job may live on after the scheduler has said that it ended.
        max_deadline: the longest total deadline that a job may have; any where left out.
        state_folder: where its queue is; who shares it shares the slots.
        helper: the command that is ``dispatch-job``, word by word; the running Python's own where left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["local"] = "local"
    slots: Annotated[int, Field(ge=1, le=10_000)] = 1
    linger: Duration = timedelta(minutes=10)
    max_deadline: PositiveDuration | None = None
    state_folder: str = Field(default_factory=lambda: str(state_folder() / "local"))
    helper: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None

    def scheduler(self) -> LocalScheduler:
        """The scheduler itself."""
        return LocalScheduler(Path(self.state_folder), self.slots, self.linger, self.helper or WRAPPER)

    def absolute(self, base: Path) -> Self:
        """The same with its places made absolute."""
        return self.model_copy(update={"state_folder": str((base / self.state_folder).absolute())})

    @property
    def queue(self) -> str:
        """What its objects are in."""
        return self.state_folder

    def signal(self) -> LocalCessation:
        """Its own cessation signal."""
        return LocalCessation(Path(self.state_folder))


Settings = LocalSettings | SlurmSettings
KINDS: Mapping[str, type[Settings]] = {"local": LocalSettings, "slurm": SlurmSettings}
"""The settings of each type of scheduler."""


def read_settings(settings: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Check a scheduler's settings and make its places absolute.

    Args:
        settings: ``type``, and what that type takes.
        base: what relative places are relative to.

    Raises:
        SpecError: an unknown type, field or value.
    """
    return _read(settings).absolute(base).model_dump(mode="json")


def scheduler_of(settings: Mapping[str, Any]) -> Scheduler:
    """The scheduler that settings name.

    Raises:
        SpecError: this version has no such scheduler.
    """
    return _read(settings).absolute(Path("/")).scheduler()


def signal_of(settings: Mapping[str, Any]) -> CessationSignal | None:
    """The cessation signal that a scheduler brings along; None where it has none, and the site must give one.

    Raises:
        SpecError: this version has no such scheduler.
    """
    return _read(settings).absolute(Path("/")).signal()


def same_queue(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a scheduler of these settings knows the objects of one of those, whatever else differs."""
    if one == other:
        return True
    first, second = (_read(settings).absolute(Path("/")) for settings in (one, other))
    return first.type == second.type and first.queue == second.queue


def job_refusal(settings: Mapping[str, Any], spec: JobSpec, workdir: Path) -> str | None:
    """Say what of a job its scheduler would refuse; None when it would take it. Changes nothing.

    Args:
        settings: the scheduler's.
        spec: the job.
        workdir: where its program is to run, absolute.
    """
    cap = describe_deadline_refusal(settings, spec)
    if cap is not None:
        return cap
    if settings.get("type") == "slurm":
        return describe_option_refusal(spec.resources)
    if settings.get("type") != "local":
        return None
    path = job_path(os.environ, spec.environment)
    return (
        describe_folder_refusal(Path(LocalSettings.model_validate(settings).state_folder))
        or describe_resource_refusal(spec.resources)
        or describe_program_refusal(spec.command, spec.setup, workdir, path)
    )


def describe_deadline_refusal(settings: Mapping[str, Any], spec: JobSpec) -> str | None:
    """Say what the site has against a job's total deadline; None where nothing."""
    longest = _read(settings).max_deadline if settings.get("type") in KINDS else None
    if longest is None or spec.deadline is None or spec.deadline.budget <= longest:
        return None
    return (
        f"deadline.budget {describe_duration(spec.deadline.budget)} is longer than the {describe_duration(longest)} "
        "that max_deadline of its scheduler allows; give less, or ask who runs the site"
    )


def _read(settings: Mapping[str, Any]) -> Settings:
    kind = KINDS.get(str(settings.get("type")))
    if kind is None:
        raise SpecError(f"scheduler.type {settings.get('type')!r} is not in this version; use {' or '.join(KINDS)}")
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            known = ", ".join(kind.model_fields)
            type = settings["type"]
            raise SpecError(f"unknown field 'scheduler.{place}'; a {type} scheduler has {known}") from None
        message = fault["msg"].removeprefix("Value error, ")
        if not place:
            raise SpecError(f"scheduler: {message}") from None
        raise SpecError(f"scheduler.{place}: {fault['input']!r} is refused: {message}") from None


def runs_here(settings: Mapping[str, Any]) -> bool:
    """Whether the scheduler's jobs run on this machine, and so see the files and programs that this process sees."""
    return settings.get("type") == "local"


def environment_here(settings: Mapping[str, Any], spec: JobSpec) -> Mapping[str, str]:
    """What is known of the environment of a job that this process would submit: all of it for one that runs here."""
    return job_environment(spec.environment, os.environ) if runs_here(settings) else spec.environment
