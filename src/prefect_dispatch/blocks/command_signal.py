"""The block of a site's cessation command."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from prefect.blocks.core import Block
from pydantic import Field, HttpUrl, model_validator

from prefect_dispatch.errors import UsageError
from prefect_dispatch.schedulers import command_signal


class CommandSignal(Block):
    """A site's own command that says whether the processes of an ended object are gone.

    Each word is one argument; `{node}`, `{nodes}`, `{object}`, `{restart}`, `{attempt}` and `{lineage}` are replaced in
    it, without a shell. The command prints `ceased` or `running` and exits with 0; asked once for all, a line
    `NODE ceased` or `NODE running` for each node. Anything else counts as unknown, and the hold stays.

    Example:
        Load a signal and ask it:

        ```python
        from prefect_dispatch.blocks import CommandSignal

        signal = CommandSignal.load("BLOCK_NAME").open()
        ```
    """

    _block_type_name = "Command Signal"
    _block_type_slug = "command-signal"
    _documentation_url = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")

    command: list[str] = Field(min_length=1, description="The program and its arguments, word by word.")
    each: Literal["node", "object"] = Field(
        default="node", description="Whether it is run once for each node, or once for the whole object."
    )
    time_limit: timedelta = Field(
        default=timedelta(seconds=20), gt=timedelta(0), description="How long one run may take before it is killed."
    )

    @model_validator(mode="after")
    def _can_be_opened(self) -> Self:
        try:
            self.open()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def open(self) -> command_signal.CommandSignal:
        """The signal itself."""
        return command_signal.CommandSignal(command=tuple(self.command), each=self.each, time_limit=self.time_limit)
