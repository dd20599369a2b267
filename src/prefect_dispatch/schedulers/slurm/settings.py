"""The settings of Slurm, as specs, blocks and records carry them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.submission import SIGNALS
from prefect_dispatch.model.fields import Duration, PositiveDuration, Text, Word
from prefect_dispatch.model.spec import Resources
from prefect_dispatch.schedulers.command_signal import CommandSignal
from prefect_dispatch.schedulers.slurm.commands import Commands
from prefect_dispatch.schedulers.slurm.scheduler import HELPER, Site, SlurmScheduler
from prefect_dispatch.schedulers.slurm.script import describe_option_refusal
from prefect_dispatch.settings import state_folder


class SlurmSettings(BaseModel):
    """The settings of Slurm.

    Attributes:
        type: ``slurm``.
        command_prefix: words before each of Slurm's commands, such as ``ssh login``; none where they run here.
        command_time_limit: how long one command may take before it is killed.
        partition: the partition of jobs that name none in ``resources.options``.
        account: their account.
        qos: their quality of service.
        options: further options of ``sbatch``, by their long names.
        helper: the command that is ``dispatch-job`` on the nodes; the running Python's own where left out.
        log_folder: where logs go that a spec does not name.
        warning_signal: the signal that the wrapper gets before the time limit; none where left out.
        warning_lead: how long before the limit. Slurm may give it up to a minute earlier.
        cessation_command: the site's command that says whether the processes of an ended object are gone.
        cessation_each: whether it is run once for each node, or once for the object.
        poll_interval: how often the cluster is asked.
        landing_bound: how long after an ``sbatch`` that gave no answer its job may still turn up.
        restart_bound: how long after an end Slurm's own restart is waited for.
        history: how far back the accounting is asked.
        max_deadline: the longest total deadline that a job may have; any where left out.
        accounting: false where the site has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["slurm"] = "slurm"
    command_prefix: tuple[Word, ...] = ()
    command_time_limit: PositiveDuration = timedelta(seconds=60)
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    options: dict[Text, Word] = Field(default_factory=dict)
    helper: tuple[Word, ...] | None = None
    log_folder: Text | None = None
    warning_signal: str | None = None
    warning_lead: PositiveDuration = timedelta(seconds=60)
    cessation_command: tuple[Word, ...] = ()
    cessation_each: Literal["node", "object"] = "node"
    poll_interval: PositiveDuration = timedelta(seconds=30)
    landing_bound: Duration = timedelta(minutes=2)
    restart_bound: Duration = timedelta(minutes=2)
    history: Annotated[Duration, Field(ge=timedelta(days=1))] = timedelta(days=30)
    max_deadline: PositiveDuration | None = None
    accounting: bool = True

    @field_validator("warning_signal")
    @classmethod
    def _known_signal(cls, value: str | None) -> str | None:
        word = value.removeprefix("SIG") if value is not None else None
        if word is not None and word not in SIGNALS:
            raise ValueError(f"signal {value!r} cannot be a warning; use one of {', '.join(SIGNALS)}")
        return word

    @field_validator("options")
    @classmethod
    def _options_of_sbatch(cls, value: dict[str, str]) -> dict[str, str]:
        refusal = describe_option_refusal(Resources(options=value))
        if refusal is not None:
            raise ValueError(refusal.removeprefix("resources."))
        return value

    @model_validator(mode="after")
    def _can_be_opened(self) -> Self:
        try:
            self.signal()
        except UsageError as error:
            raise ValueError(str(error)) from None
        if self.command_prefix and not self.command_prefix[0]:
            raise ValueError("command_prefix begins with an empty word; name a program")
        return self

    def absolute(self, base: Path) -> Self:
        """The same with its places made absolute; those behind a prefix are the site's and stay as they are."""
        if self.command_prefix:
            return self
        folder = Path(self.log_folder) if self.log_folder is not None else state_folder() / "slurm" / "logs"
        return self.model_copy(update={"log_folder": str((base / folder).absolute())})

    @property
    def queue(self) -> tuple[str, ...]:
        """What tells one cluster from another, as far as settings can: where its commands run."""
        return self.command_prefix

    def site(self) -> Site:
        """How the site is used."""
        named = {"partition": self.partition, "account": self.account, "qos": self.qos}
        return Site(
            commands=Commands(self.command_prefix, self.command_time_limit),
            options={**{name: value for name, value in named.items() if value}, **self.options},
            helper=self.helper or HELPER,
            log_folder=Path(self.log_folder) if self.log_folder is not None else None,
            warning_signal=self.warning_signal,
            warning_lead=self.warning_lead,
            poll_interval=self.poll_interval,
            landing_bound=self.landing_bound,
            restart_bound=self.restart_bound,
            history=self.history,
            accounting=self.accounting,
        )

    def scheduler(self) -> SlurmScheduler:
        """The scheduler itself."""
        return SlurmScheduler(self.site())

    def signal(self) -> CommandSignal | None:
        """The site's cessation command, where it has one."""
        if not self.cessation_command:
            return None
        return CommandSignal(command=self.cessation_command, each=self.cessation_each)
