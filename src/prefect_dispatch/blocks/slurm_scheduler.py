"""The block of Slurm."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from prefect.blocks.core import Block
from pydantic import Field, HttpUrl, model_validator

from prefect_dispatch.errors import SpecError
from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.schedulers.registry import read_settings, scheduler_of


class SlurmScheduler(Block):
    """Runs jobs on a Slurm cluster, by its own commands: here, or behind a prefix such as `ssh login`.

    Example:
        Load a scheduler and see what it can do:

        ```python
        from prefect_dispatch.blocks import SlurmScheduler

        scheduler = SlurmScheduler.load("BLOCK_NAME")
        print(scheduler.open().capabilities)
        ```
    """

    _block_type_name = "Slurm Scheduler"
    _block_type_slug = "slurm-scheduler"
    _documentation_url = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")

    partition: str | None = Field(default=None, description="The partition of jobs that name none themselves.")
    account: str | None = Field(default=None, description="The account of jobs that name none themselves.")
    qos: str | None = Field(default=None, description="The quality of service of jobs that name none themselves.")
    options: dict[str, str] = Field(
        default_factory=dict, description="Further options of sbatch by their long names, such as constraint."
    )
    command_prefix: list[str] = Field(
        default_factory=list,
        description="Words before each of Slurm's commands, such as ssh and login; none where they run here.",
    )
    command_time_limit: timedelta = Field(
        default=timedelta(seconds=60), description="How long one of Slurm's commands may take before it is killed."
    )
    helper: list[str] | None = Field(
        default=None,
        description="The command that is dispatch-job on the nodes, word by word; this Python's own where left empty.",
    )
    log_folder: str | None = Field(
        default=None, description="Where logs go that a spec does not name. A folder of the user's where left empty."
    )
    warning_signal: str | None = Field(
        default=None, description="The signal before the time limit, such as TERM; none where left empty."
    )
    warning_lead: timedelta = Field(
        default=timedelta(seconds=60), description="How long before the limit; Slurm may be a minute early."
    )
    cessation_command: list[str] = Field(
        default_factory=list,
        description="The site's command that says whether the processes of an ended object are gone, word by word.",
    )
    cessation_each: Literal["node", "object"] = Field(
        default="node", description="Whether that is run once for each node, or once for the whole object."
    )
    poll_interval: timedelta = Field(default=timedelta(seconds=30), description="How often the cluster is asked.")
    landing_bound: timedelta = Field(
        default=timedelta(minutes=2),
        description="How long after an sbatch that gave no answer its job may still turn up.",
    )
    restart_bound: timedelta = Field(
        default=timedelta(minutes=2), description="How long after an end Slurm's own restart is waited for."
    )
    history: timedelta = Field(
        default=timedelta(days=30), description="How far back the accounting is asked for a job that was lost."
    )
    max_deadline: timedelta | None = Field(
        default=None, description="The longest total deadline that a job may have; any where left empty."
    )
    accounting: bool = Field(default=True, description="False where the site has no accounting (sacct).")

    @model_validator(mode="after")
    def _can_be_opened(self) -> Self:
        try:
            self.settings()
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self

    def settings(self) -> dict[str, Any]:
        """The scheduler's settings as a record carries them, places made absolute."""
        own = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        return read_settings({"type": "slurm", **own}, Path.cwd())

    def open(self) -> Scheduler:
        """The scheduler itself."""
        return scheduler_of(self.settings())
