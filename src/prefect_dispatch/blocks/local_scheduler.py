"""The block of the local scheduler."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect.blocks.core import Block
from pydantic import Field, HttpUrl

from prefect_dispatch.schedulers.port import Scheduler
from prefect_dispatch.schedulers.registry import read_settings, scheduler_of


class LocalScheduler(Block):
    """Runs jobs on this machine, a number of slots at a time, without a daemon.

    Example:
        Load a scheduler and run a job on it:

        ```python
        from prefect_dispatch.blocks import LocalScheduler

        scheduler = LocalScheduler.load("BLOCK_NAME")
        print(scheduler.open().capabilities)
        ```
    """

    _block_type_name = "Local Scheduler"
    _block_type_slug = "local-scheduler"
    _documentation_url = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")

    slots: int = Field(default=1, ge=1, le=10_000, description="How many jobs may run at a time.")
    linger: timedelta = Field(
        default=timedelta(minutes=10),
        description="How long the processes of a job may live on after the scheduler has said that it ended.",
    )
    max_deadline: timedelta | None = Field(
        default=None, description="The longest total deadline that a job may have; any where left empty."
    )
    state_folder: str | None = Field(
        default=None,
        description="Where the queue is; who shares it shares the slots. A folder of the user's where left empty.",
    )

    helper: list[str] | None = Field(
        default=None,
        description="The command that is dispatch-job, word by word; the running Python's own where left empty.",
    )

    def settings(self) -> dict[str, Any]:
        """The scheduler's settings as a record carries them, places made absolute."""
        own: dict[str, Any] = {"type": "local", "slots": self.slots, "linger": self.linger}
        if self.max_deadline is not None:
            own["max_deadline"] = self.max_deadline
        if self.state_folder is not None:
            own["state_folder"] = self.state_folder
        if self.helper is not None:
            own["helper"] = self.helper
        return read_settings(own, Path.cwd())

    def open(self) -> Scheduler:
        """The scheduler itself."""
        return scheduler_of(self.settings())
